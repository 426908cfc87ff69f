#include "core/findings.hpp"

#include "core/clock_skew.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace syncguard::core {
namespace {

using std::chrono::milliseconds;

// Longer, and the time-outs that suit most networks leave little room.
constexpr std::chrono::milliseconds slow{100};

std::string without_code(const LockError& error) {
  return std::string(error.what()).substr(to_string(error.code()).size() + 2);
}

void throw_if_stopped(const LockError& error) {
  if (error.code() == ErrorCode::aborted) throw LockError(error);
}

}  // namespace

Finding fine(std::string check, std::string found) {
  return {Finding::Verdict::fine, std::move(check), std::move(found), ""};
}

Finding warning(std::string check, std::string found, std::string advice) {
  return {Finding::Verdict::warning, std::move(check), std::move(found), std::move(advice)};
}

Finding failure(std::string check, std::string found, std::string advice) {
  return {Finding::Verdict::failure, std::move(check), std::move(found), std::move(advice)};
}

Finding obstacle(const LockError& error) {
  throw_if_stopped(error);
  switch (error.code()) {
    case ErrorCode::auth_failed:
      return failure("authorised", without_code(error), "check the user, the password, and what that user may do");
    case ErrorCode::invalid_argument:
      return failure("configuration", without_code(error), "change the URL or the store as the message says");
    case ErrorCode::rate_limited:
      return failure("reachable", without_code(error), "give the store room, then look again");
    default:
      return failure("reachable", without_code(error), "check that the store runs, and that the URL leads to it");
  }
}

Finding no_wake_ups(std::string check, const LockError& error, std::string advice) {
  throw_if_stopped(error);
  return warning(std::move(check), std::string("fails, so that waiting polls: ") + error.what(), std::move(advice));
}

Finding latency(std::chrono::microseconds round_trip) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", static_cast<double>(round_trip.count()) / 1000.0);
  const std::string found = std::string(text) + " per request";
  if (round_trip < slow) return fine("latency", found);
  return warning("latency", found, "move closer to the store, or allow for it in operation_timeout and the ttl");
}

Finding skew(milliseconds ahead_of_server) {
  const auto size = std::chrono::abs(ahead_of_server);
  if (size == milliseconds::zero()) return fine("clock skew", "none that could be told from the network");
  const std::string found = "this host's clock is " + std::to_string(size.count()) + " ms " +
                            (ahead_of_server > milliseconds::zero() ? "ahead of" : "behind") + " the store's";
  const std::string advice = "synchronise both clocks (NTP)";
  if (size >= skew_to_act_on) return failure("clock skew", found, advice);
  if (size >= skew_to_warn_of) return warning("clock skew", found, advice);
  return fine("clock skew", found);
}

void Contact::answered(std::chrono::nanoseconds took, std::optional<milliseconds> ahead_of_server) {
  round_trips_.push_back(took);
  if (ahead_of_server && (!skew_ || std::chrono::abs(*ahead_of_server) < std::chrono::abs(*skew_))) {
    skew_ = ahead_of_server;
  }
}

void Contact::report(std::vector<Finding>& findings) {
  // The first one includes connecting.
  round_trips_.erase(round_trips_.begin());
  std::ranges::sort(round_trips_);
  findings.push_back(fine("reachable", "yes"));
  findings.push_back(
      latency(std::chrono::duration_cast<std::chrono::microseconds>(round_trips_[round_trips_.size() / 2])));
  if (skew_) findings.push_back(skew(*skew_));
}

}  // namespace syncguard::core
