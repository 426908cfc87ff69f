/// \file
/// Options of a call.
///
/// All of these are trivially copyable aggregates, for two reasons: designated initializers work at the call site
/// (`{.ttl = 30s, .wait = {.timeout = 10s}}`), and g++ 12 may destroy any other temporary twice inside a co_await
/// expression (docs/adr/0007-trivially-copyable-options.md).
#pragma once

#include <chrono>
#include <limits>
#include <stop_token>
#include <type_traits>

namespace syncguard {
inline namespace v0_1 {

/// The limits of a ttl, on every store. Any other ttl throws LockError(invalid_argument).
inline constexpr std::chrono::milliseconds min_ttl{1};
inline constexpr std::chrono::milliseconds max_ttl{1'000'000'000'000};

/// The base of a delay: retry_delay * 2^(retry-1), or always retry_delay.
enum class Backoff { exponential, fixed };
/// The delay, drawn from base/2 to base, drawn from 0 to base, or the base itself.
enum class Jitter { equal, full, none };

/// How long to wait for a held lock, and how often to retry. Negative values throw LockError(invalid_argument).
struct WaitOptions {
  static constexpr std::chrono::milliseconds no_timeout = std::chrono::milliseconds::max();
  static constexpr int unlimited_retries = std::numeric_limits<int>::max();

  /// On the steady clock. At the timeout there is one last attempt (none if other waiters of this client are still
  /// ahead), then LockError(acquisition_timeout). With 0 that attempt is the only one; with no_timeout the wait never
  /// times out.
  std::chrono::milliseconds timeout{5000};
  /// How many retries to make after a delay before LockError(acquisition_timeout), even if the timeout has not passed.
  /// Attempts after a wake-up do not count. Unlimited by default: only the timeout ends the wait.
  int max_retries = unlimited_retries;
  /// See Backoff and Jitter. A delay is never shorter than 1 ms, even if this or max_delay is 0.
  std::chrono::milliseconds retry_delay{100};
  /// The maximum delay.
  std::chrono::milliseconds max_delay{10'000};
  Backoff backoff = Backoff::exponential;
  Jitter jitter = Jitter::equal;
  /// Ends only the wait, with LockError(aborted). Read when the call starts; need not live longer.
  const std::stop_token* stop = nullptr;
};

/// What with_lock does if the lock was gone before its function returned. The loss is always reported; see
/// Callbacks::on_release_error.
enum class IfLost {
  report,  ///< returns the function's result
  fail,    ///< throws LockError(lock_lost); an exception from the function takes precedence
};

struct AcquireOptions {
  /// From min_ttl to max_ttl; anything else throws LockError(invalid_argument).
  std::chrono::milliseconds ttl{30'000};
  /// Renews the lease after a third of its ttl for as long as it is held.
  bool auto_extend = false;
  WaitOptions wait{};
  /// For with_lock; acquire ignores it.
  IfLost if_lost = IfLost::report;
};

/// try_acquire makes one attempt and does not queue.
struct TryOptions {
  /// As in AcquireOptions.
  std::chrono::milliseconds ttl{30'000};
  bool auto_extend = false;
};

static_assert(std::is_trivially_copyable_v<WaitOptions>);
static_assert(std::is_trivially_copyable_v<AcquireOptions>);
static_assert(std::is_trivially_copyable_v<TryOptions>);

}  // namespace v0_1
}  // namespace syncguard
