// Timeouts for tests on a machine that is busy with other tests.
#pragma once

#include <syncguard/syncguard.hpp>

#include <chrono>
#include <string>
#include <utility>

namespace syncguard::testing {

// A waiter with these options does not poll: it acquires the lock when a release wakes it or the holder's lock expires.
inline constexpr AcquireOptions patient{.wait = {.timeout = std::chrono::seconds(60),
                                                 .max_retries = WaitOptions::unlimited_retries,
                                                 .retry_delay = std::chrono::seconds(60),
                                                 .max_delay = std::chrono::seconds(60)}};
// Long enough for a wake-up on a busy machine, and far below the wait without one.
inline constexpr std::chrono::seconds soon{15};

// Tests of timeouts set their own timeout, in the URL or the options.
inline ClientOptions with_long_timeout(ClientOptions options = {}) {
  if (!options.operation_timeout) options.operation_timeout = std::chrono::seconds(20);
  return options;
}

inline Locks open_with_long_timeout(const std::string& url, ClientOptions options = {}) {
  return open(url, with_long_timeout(std::move(options)));
}

}  // namespace syncguard::testing
