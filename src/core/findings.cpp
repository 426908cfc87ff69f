#include "core/findings.hpp"

#include "core/causes.hpp"
#include "core/expiry.hpp"
#include "core/fence_limit.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace syncguard::core {
namespace {

using std::chrono::milliseconds;

// Above this round trip, the default timeouts leave little room for retries.
constexpr std::chrono::milliseconds slow{100};

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

Finding unreachable(const LockError& error) {
  throw_if_stopped(error);
  switch (error.code()) {
    case ErrorCode::auth_failed:
      return failure("authorized", message_with_causes(error),
                     "check the user, the password and the user's permissions");
    case ErrorCode::invalid_argument:
      return failure("configuration", message_with_causes(error), "change the URL or the store as described");
    case ErrorCode::rate_limited:
      return failure("reachable", message_with_causes(error), "free space in the store, then check again");
    default:
      return failure("reachable", message_with_causes(error),
                     "check that the store is running and that the URL is correct");
  }
}

Finding no_wake_ups(std::string check, const LockError& error, std::string advice) {
  throw_if_stopped(error);
  return warning(std::move(check), std::string("fails, so waiters poll: ") + message_with_causes(error),
                 std::move(advice));
}

Finding latency(std::chrono::microseconds round_trip) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", static_cast<double>(round_trip.count()) / 1000.0);
  const std::string found = std::string(text) + " per request";
  if (round_trip < slow) return fine("latency", found);
  return warning("latency", found, "move closer to the store, or choose a longer operation_timeout and ttl");
}

Finding skew(milliseconds ahead_of_server) {
  const auto size = std::chrono::abs(ahead_of_server);
  if (size == milliseconds::zero()) return fine("clock skew", "none beyond the network delay");
  const std::string found = "this host's clock is " + std::to_string(size.count()) + " ms " +
                            (ahead_of_server > milliseconds::zero() ? "ahead of" : "behind") + " the store's";
  const std::string advice = "synchronize both clocks (NTP)";
  if (size >= skew_warning) return warning("clock skew", found, advice);
  return fine("clock skew", found);
}

Finding fences(FenceSource source, const std::string& losses) {
  if (source == FenceSource::clock) {
    return fine("fences", "never below the store's clock: they keep growing even if " + losses + " loses counters");
  }
  return warning("fences", "counted only: they repeat if " + losses + " loses counters",
                 "remove fences=counter from the URL");
}

Finding fence_counters(std::uint64_t highest, Timestamp now, Examined examined) {
  const std::string check = "fence counters";
  if (highest <= clock_floor(now + std::chrono::seconds(1))) {
    return fine(check, examined == Examined::all ? "none is ahead of the clock"
                                                 : "none of those examined is ahead of the clock");
  }
  return warning(
      check,
      "ahead of the clock, up to " + Fence(std::min(highest, Fence::max_value)).str() +
          ": fences of such keys can repeat if their counters are lost",
      "check whether the store's clock was ever wrong, or is now, or counters were raised by hand; the clock "
      "protects these keys again once it has passed their counters");
}

void LatencyCheck::add(std::chrono::nanoseconds took, std::optional<milliseconds> ahead_of_server) {
  round_trips_.push_back(took);
  if (ahead_of_server && (!skew_ || std::chrono::abs(*ahead_of_server) < std::chrono::abs(*skew_))) {
    skew_ = ahead_of_server;
  }
}

void LatencyCheck::report(std::vector<Finding>& findings) {
  // The first one includes connecting.
  round_trips_.erase(round_trips_.begin());
  std::ranges::sort(round_trips_);
  findings.push_back(fine("reachable", "yes"));
  findings.push_back(
      latency(std::chrono::duration_cast<std::chrono::microseconds>(round_trips_[round_trips_.size() / 2])));
  if (skew_) findings.push_back(skew(*skew_));
}

}  // namespace syncguard::core
