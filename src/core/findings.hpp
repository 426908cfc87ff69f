// Findings that are common to several backends.
#pragma once

#include <syncguard/diagnosis.hpp>
#include <syncguard/error.hpp>
#include <syncguard/fence.hpp>
#include <syncguard/lock_info.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace syncguard::core {

Finding fine(std::string check, std::string found);
Finding warning(std::string check, std::string found, std::string advice);
Finding failure(std::string check, std::string found, std::string advice);

// The store could not be examined: it is unreachable, it rejects the client, or it is misconfigured. This function and
// the next one rethrow an error that was caused by a stop request.
Finding unreachable(const LockError& error);
// Waiters cannot be woken when a lock becomes free.
Finding no_wake_ups(std::string check, const LockError& error, std::string advice);
// Rates the duration of one request.
Finding latency(std::chrono::microseconds round_trip);
// Rates the result of core::clock_skew. Never a failure: usually the server's clock decides when locks expire.
Finding skew(std::chrono::milliseconds ahead_of_server);

// Whether fences can repeat. losses names the events that lose counters in this store, such as "a failover or a
// restore".
Finding fences(FenceSource source, const std::string& losses);

enum class Examined { all, some };
// Given the highest examined fence counter and the store's time: whether counters are further ahead of the clock than
// the counters of busy keys can be.
Finding fence_counters(std::uint64_t highest, Timestamp now, Examined examined = Examined::all);

// Collects the round trips of a few requests and reports whether the store replies, how fast, and how its clock
// differs.
class LatencyCheck {
 public:
  static constexpr int requests = 5;

  // Adds one request: its duration and, if the reply contains a time, how far this host's clock is ahead.
  void add(std::chrono::nanoseconds took, std::optional<std::chrono::milliseconds> ahead_of_server);
  // Call once, after adding all requests.
  void report(std::vector<Finding>& findings);

 private:
  std::vector<std::chrono::nanoseconds> round_trips_;
  std::optional<std::chrono::milliseconds> skew_;
};

}  // namespace syncguard::core
