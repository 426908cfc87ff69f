/// \file
/// Options of a call.
///
/// All of these are trivially copyable aggregates, for two reasons: designated initializers work at the call site
/// (`{.ttl = 30s, .wait = {.timeout = 10s}}`), and g++ 12 may destroy any other temporary twice inside a co_await
/// expression (docs/adr/0007-trivially-copyable-options.md).
#pragma once

#include <syncguard/export.hpp>

#include <chrono>
#include <concepts>
#include <limits>
#include <type_traits>

namespace syncguard {
inline namespace v0_1 {

/// A std::chrono::milliseconds in options: any duration that converts to milliseconds converts to this. A bare number
/// does not compile, and the compiler's message says what to write instead.
struct Milliseconds : std::chrono::milliseconds {
  template <std::convertible_to<std::chrono::milliseconds> Duration>
  constexpr Milliseconds(Duration value) noexcept  // NOLINT(*-explicit-*): like std::chrono::milliseconds
      : std::chrono::milliseconds(value) {}
  template <typename Number>
  requires std::is_arithmetic_v<Number>
  constexpr Milliseconds(Number) noexcept {  // NOLINT(*-explicit-*): never compiles
    static_assert(!std::is_arithmetic_v<Number>,
                  "a duration needs a unit: write 30s or 500ms (using namespace std::chrono_literals)");
  }
};

/// The limits of a ttl, on every store. Any other ttl throws LockError(invalid_argument).
inline constexpr std::chrono::milliseconds min_ttl{1};
inline constexpr std::chrono::milliseconds max_ttl{1'000'000'000'000};

/// For max_hold: a lease is renewed for as long as it is held.
inline constexpr std::chrono::milliseconds no_max_hold = std::chrono::milliseconds::max();

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
  Milliseconds timeout = std::chrono::seconds(5);
  /// How many retries to make after a delay before LockError(acquisition_timeout), even if the timeout has not passed.
  /// Attempts after a wake-up do not count. Unlimited by default: only the timeout ends the wait.
  int max_retries = unlimited_retries;
  /// See Backoff and Jitter. A delay is never shorter than 1 ms, even if this or max_delay is 0.
  Milliseconds retry_delay = std::chrono::milliseconds(100);
  /// The maximum delay.
  Milliseconds max_delay = std::chrono::seconds(10);
  Backoff backoff = Backoff::exponential;
  Jitter jitter = Jitter::equal;
};

/// acquire waits for the lock.
struct AcquireOptions {
  /// How long the lock stays held if this process stops renewing it. From min_ttl to max_ttl; anything else throws
  /// LockError(invalid_argument).
  Milliseconds ttl = std::chrono::seconds(30);
  /// Renews the lease after a third of its ttl for as long as it is held, or until max_hold.
  bool auto_extend = false;
  /// How long renewals may keep the lease, counted from when the granting (or adopting) request was sent, so that a
  /// hung section does not hold its lock forever. Then lost() fires, and the lock expires. Positive; less than the ttl
  /// has no effect, because nothing is renewed then. Lease::extend() is not limited by it.
  Milliseconds max_hold = no_max_hold;
  WaitOptions wait{};
};

/// try_acquire makes one attempt and does not queue.
struct TryOptions {
  /// As in AcquireOptions.
  Milliseconds ttl = std::chrono::seconds(30);
  bool auto_extend = false;
  Milliseconds max_hold = no_max_hold;
};

/// What with_lock does if the lock was lost before its function returned. The loss is always reported; see
/// Callbacks::on_release_error.
enum class IfLost {
  fail,    ///< throws LockError(lock_lost); an exception from the function takes precedence
  report,  ///< returns the function's result
};

/// with_lock waits for the lock, renews it, and says if it was lost, unless told otherwise.
struct SectionOptions {
  /// As in AcquireOptions, except that renewing is the default.
  Milliseconds ttl = std::chrono::seconds(30);
  bool auto_extend = true;
  Milliseconds max_hold = no_max_hold;
  WaitOptions wait{};
  IfLost if_lost = IfLost::fail;
};

/// adopt makes a lease of a lock that another lease has given up with detach().
struct AdoptOptions {
  /// The lock is extended by this at once. As in AcquireOptions.
  Milliseconds ttl = std::chrono::seconds(30);
  bool auto_extend = true;
  Milliseconds max_hold = no_max_hold;
};

static_assert(std::is_trivially_copyable_v<WaitOptions>);
static_assert(std::is_trivially_copyable_v<AcquireOptions>);
static_assert(std::is_trivially_copyable_v<TryOptions>);
static_assert(std::is_trivially_copyable_v<SectionOptions>);
static_assert(std::is_trivially_copyable_v<AdoptOptions>);

}  // namespace v0_1
}  // namespace syncguard
