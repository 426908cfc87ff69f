// How often opted-in cleanup may run.
#pragma once

#include <atomic>
#include <chrono>

namespace syncguard::core {

// At most once a second. Thread-safe.
class CleanupPace {
 public:
  bool may_clean_up(std::chrono::steady_clock::time_point time) noexcept {
    const auto now = time.time_since_epoch();
    auto last = last_.load();
    return now - last >= std::chrono::seconds(1) && last_.compare_exchange_strong(last, now);
  }

 private:
  std::atomic<std::chrono::steady_clock::duration> last_{std::chrono::steady_clock::duration::zero()};
};

}  // namespace syncguard::core
