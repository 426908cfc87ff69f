// Findings that more than one backend comes to.
#pragma once

#include <syncguard/diagnosis.hpp>
#include <syncguard/error.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace syncguard::core {

Finding fine(std::string check, std::string found);
Finding warning(std::string check, std::string found, std::string advice);
Finding failure(std::string check, std::string found, std::string advice);

// What kept us from looking: that the store is out of reach, refuses us, or is not what it should be. A stop request is
// none of these, and is thrown again, here and below.
Finding obstacle(const LockError& error);
// What kept us from being told when a lock is free.
Finding no_wake_ups(std::string check, const LockError& error, std::string advice);
// From how long one request takes.
Finding latency(std::chrono::microseconds round_trip);
// From core::clock_skew.
Finding skew(std::chrono::milliseconds ahead_of_server);

// What a few requests tell of a store: that it answers, how fast, and what its clock shows.
class Contact {
 public:
  static constexpr int requests = 5;

  // A request took so long; by its answer, if that has a time in it, this host's clock is so far ahead.
  void answered(std::chrono::nanoseconds took, std::optional<std::chrono::milliseconds> ahead_of_server);
  // Once all requests are answered.
  void report(std::vector<Finding>& findings);

 private:
  std::vector<std::chrono::nanoseconds> round_trips_;
  std::optional<std::chrono::milliseconds> skew_;
};

}  // namespace syncguard::core
