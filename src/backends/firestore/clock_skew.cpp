#include "backends/firestore/clock_skew.hpp"

#include <string>

namespace syncguard::firestore {

std::string describe_skew(std::chrono::milliseconds skew) {
  return std::to_string(std::chrono::abs(skew).count()) + " ms " + (skew > skew.zero() ? "ahead of" : "behind");
}

LockError unreliable_clock(const HostTime& time) {
  if (!time.skew) {
    return LockError(
        ErrorCode::service_unavailable,
        "Firestore's replies contain no time, so this host's clock, which decides when locks expire, cannot "
        "be checked: is this Firestore?");
  }
  if (time.is_wrong()) {
    return LockError(ErrorCode::service_unavailable,
                     "this host's clock is " + describe_skew(time.skew->certain()) +
                         " Firestore's, and it decides when locks expire: synchronize it (NTP)");
  }
  const auto worst = std::chrono::abs(time.skew->least) > time.skew->most ? time.skew->least : time.skew->most;
  return LockError(
      ErrorCode::service_unavailable,
      "this host's clock, which decides when locks expire, may be up to " + describe_skew(worst) +
          " Firestore's: replies take too long to tell. Locks need less than 500 ms: use a faster network, "
          "and synchronize the clock (NTP)");
}

}  // namespace syncguard::firestore
