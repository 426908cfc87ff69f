/// \file
/// Errors.
///
/// Expected outcomes of locking (contended, expired, absent) are return values, never exceptions. Everything else is a
/// LockError: one exception type with properties instead of a class hierarchy.
#pragma once

#include <syncguard/export.hpp>

#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace syncguard {
inline namespace v0_1 {

enum class ErrorCode {
  service_unavailable,  ///< the backend cannot be reached, or cannot serve requests now
  auth_failed,          ///< credentials or permissions were rejected
  invalid_argument,     ///< the request can never succeed
  rate_limited,         ///< the backend, or the client's own queue, is full
  network_timeout,      ///< one operation did not finish within its operation_timeout
  acquisition_timeout,  ///< the wait for a lock ended without it
  aborted,              ///< a stop was requested, or the client was closed
  lock_lost,            ///< the lock was gone before its section ended
  internal,             ///< anything else
};

/// The code's name, shared by all SyncGuard libraries: "ServiceUnavailable", "AuthFailed", ...
SYNCGUARD_EXPORT std::string_view to_string(ErrorCode code) noexcept;

/// True for service_unavailable, rate_limited and network_timeout: the same call may succeed later.
SYNCGUARD_EXPORT bool retryable(ErrorCode code) noexcept;

/// Whether a failed request may have taken effect.
enum class Effect { none, in_doubt };

/// The lock that an error is about. Raw identifiers are only here, never in the message, so that a logged message leaks
/// nothing. Empty if unknown.
struct ErrorContext {
  std::string key{};
  std::string lock_id{};
  std::exception_ptr cause{};
};

/// Thrown by every operation that fails. Copying it never throws.
class SYNCGUARD_EXPORT LockError : public std::runtime_error {
 public:
  /// what() becomes "<code>: <message>".
  LockError(ErrorCode code, const std::string& message, Effect effect = Effect::none, ErrorContext context = {});
  ~LockError() override;
  LockError(const LockError&) noexcept;
  LockError& operator=(const LockError&) noexcept;

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }
  [[nodiscard]] bool retryable() const noexcept { return syncguard::retryable(code_); }
  /// True if the request may have reached the store and taken effect, so that repeating it blindly could be wrong.
  [[nodiscard]] bool in_doubt() const noexcept { return effect_ == Effect::in_doubt; }
  [[nodiscard]] const ErrorContext& context() const noexcept { return *context_; }

  /// Returns the same error with these identifiers, unless it already has its own.
  [[nodiscard]] LockError about(std::string_view key, std::string_view lock_id) const;
  /// Returns the same error, marked as in doubt or as without effect.
  [[nodiscard]] LockError as_in_doubt() const;
  [[nodiscard]] LockError as_no_effect() const;

 private:
  ErrorCode code_;
  Effect effect_;
  std::shared_ptr<const ErrorContext> context_;
};

}  // namespace v0_1
}  // namespace syncguard
