// What goes wrong, and what a caller can do about it.
//
// Outcomes that belong to locking (contended, expired, not there) are values and never exceptions.
// Everything else is a LockError: one type, with properties that can be asked, instead of a taxonomy.
#pragma once

#include <syncguard/export.hpp>

#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace syncguard {

enum class ErrorCode {
  service_unavailable,  // the backend cannot be reached, or cannot serve now
  auth_failed,          // credentials or permissions were refused
  invalid_argument,     // the request can never work as it is
  rate_limited,         // the backend, or our own queue, has no room now
  network_timeout,      // one operation did not finish within its operation_timeout
  acquisition_timeout,  // waiting for a lock ended without it
  aborted,              // a stop was requested, or the client was closed
  internal,             // anything else
};

// The code's name as it is written in every SyncGuard: "ServiceUnavailable", "AuthFailed", ...
SYNCGUARD_EXPORT std::string_view to_string(ErrorCode code) noexcept;

// True for service_unavailable, rate_limited and network_timeout: the same call may succeed later.
SYNCGUARD_EXPORT bool retryable(ErrorCode code) noexcept;

// Whether a request that failed may have taken effect all the same.
enum class Effect { none, in_doubt };

// What an error was about. Raw identifiers live here and never in the message, so that a logged message leaks
// nothing. Empty where unknown.
struct ErrorContext {
  std::string key{};
  std::string lock_id{};
  std::exception_ptr cause{};
};

// Thrown by every operation that could not be carried out. Copying it never throws.
class SYNCGUARD_EXPORT LockError : public std::runtime_error {
 public:
  // what() becomes "<code>: <message>".
  LockError(ErrorCode code, const std::string& message, Effect effect = Effect::none, ErrorContext context = {});
  ~LockError() override;
  LockError(const LockError&) noexcept;
  LockError& operator=(const LockError&) noexcept;

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }
  [[nodiscard]] bool retryable() const noexcept { return syncguard::retryable(code_); }
  // True if the request may have reached the store and taken effect, so that repeating it blindly could be wrong.
  [[nodiscard]] bool in_doubt() const noexcept { return effect_ == Effect::in_doubt; }
  [[nodiscard]] const ErrorContext& context() const noexcept { return *context_; }

  // The same error, with these identifiers where it has none of its own.
  [[nodiscard]] LockError about(std::string_view key, std::string_view lock_id) const;
  // The same error, in doubt, and not in doubt.
  [[nodiscard]] LockError as_in_doubt() const;
  [[nodiscard]] LockError without_doubt() const;

 private:
  ErrorCode code_;
  Effect effect_;
  std::shared_ptr<const ErrorContext> context_;
};

}  // namespace syncguard
