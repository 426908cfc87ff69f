// How tests wait: what is slow is the machine, which runs other tests beside this one.
#pragma once

#include <syncguard/syncguard.hpp>

#include <chrono>
#include <string>
#include <utility>

namespace syncguard::testing {

// Who waits for a lock like this is woken, or waits until the holder's time is over.
inline constexpr AcquireOptions patient{.wait = {.timeout = std::chrono::seconds(60),
                                                 .max_retries = WaitOptions::unlimited_retries,
                                                 .retry_delay = std::chrono::seconds(60),
                                                 .max_delay = std::chrono::seconds(60)}};
// Time enough for a wake-up on a busy machine, and far below what is waited without one.
inline constexpr std::chrono::seconds soon{15};

// Tests of time-outs set their own, in the URL or the options.
inline ClientOptions patient_options(ClientOptions options = {}) {
  if (!options.operation_timeout) options.operation_timeout = std::chrono::seconds(20);
  return options;
}

inline Locks open_patiently(const std::string& url, ClientOptions options = {}) {
  return open(url, patient_options(std::move(options)));
}

}  // namespace syncguard::testing
