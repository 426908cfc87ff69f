// Findings that more than one backend comes to.
#pragma once

#include <syncguard/diagnosis.hpp>
#include <syncguard/error.hpp>

#include <chrono>
#include <string>

namespace syncguard::core {

Finding fine(std::string check, std::string found);
Finding warning(std::string check, std::string found, std::string advice);
Finding failure(std::string check, std::string found, std::string advice);

// What kept us from looking: that the store is out of reach, refuses us, or is not what it should be.
Finding obstacle(const LockError& error);
// From how long one request takes.
Finding latency(std::chrono::microseconds round_trip);
// From core::clock_skew.
Finding skew(std::chrono::milliseconds ahead_of_server);

}  // namespace syncguard::core
