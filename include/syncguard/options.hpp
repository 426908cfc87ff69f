// What a caller can choose per call.
//
// All of these are trivially copyable aggregates, for two reasons: designated initialisers work at the call site
// (`{.ttl = 30s, .wait = {.timeout = 10s}}`), and g++ 12 may destroy any other temporary twice inside a co_await
// expression (docs/adr/0007-trivially-copyable-options.md).
#pragma once

#include <chrono>
#include <limits>
#include <stop_token>
#include <type_traits>

namespace syncguard {

// The base of a delay: retry_delay * 2^(retry-1), or always retry_delay.
enum class Backoff { exponential, fixed };
// The delay, drawn from base/2 to base, drawn from 0 to base, or the base itself.
enum class Jitter { equal, full, none };

// How long and how eagerly to wait for a lock that somebody else holds. Negative values are
// LockError(invalid_argument).
struct WaitOptions {
  static constexpr std::chrono::milliseconds no_timeout = std::chrono::milliseconds::max();
  static constexpr int unlimited_retries = std::numeric_limits<int>::max();

  // On the steady clock. When it is over there is one last attempt (none if others of this client are still in front),
  // then LockError(acquisition_timeout). With 0 that attempt is the only one.
  std::chrono::milliseconds timeout{5000};
  // Delays that may pass; attempts after a wake-up do not count.
  int max_retries = 10;
  // See Backoff and Jitter.
  std::chrono::milliseconds retry_delay{100};
  // No delay is longer.
  std::chrono::milliseconds max_delay{10'000};
  Backoff backoff = Backoff::exponential;
  Jitter jitter = Jitter::equal;
  // Ends the waiting, and nothing else, with LockError(aborted). Read when the call starts; need not live longer.
  const std::stop_token* stop = nullptr;
};

struct AcquireOptions {
  // From 1 ms to 10^12 ms; anything else is LockError(invalid_argument).
  std::chrono::milliseconds ttl{30'000};
  // Renew the lease at a third of its ttl for as long as it is held.
  bool auto_extend = false;
  WaitOptions wait{};
};

// try_acquire makes one attempt and does not queue.
struct TryOptions {
  // As in AcquireOptions.
  std::chrono::milliseconds ttl{30'000};
  bool auto_extend = false;
};

static_assert(std::is_trivially_copyable_v<WaitOptions>);
static_assert(std::is_trivially_copyable_v<AcquireOptions>);
static_assert(std::is_trivially_copyable_v<TryOptions>);

}  // namespace syncguard
