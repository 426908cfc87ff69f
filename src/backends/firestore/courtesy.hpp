// Letting others go first.
#pragma once

#include <syncguard/lock_id.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace syncguard::firestore {

// Whoever gives a lock back is the first who could have it again, long before others have heard of it; and no queue in
// the store keeps the order. So a client that met others at a lock leaves it to them for a moment when it gives it
// back: as long as they need to hear of it and to try. Decides order only, never safety.
class Courtesy {
 public:
  using Clock = std::chrono::steady_clock;

  // Somebody of this client found the lock held.
  void met(const std::string& document, const LockId& holder) {
    const std::lock_guard lock(mutex_);
    const auto found = manners_.find(document);
    // Threads of this client have an order of their own.
    if (found != manners_.end() && found->second.ours == holder) return;
    if (found == manners_.end() && manners_.size() >= most_documents) manners_.clear();
    manners_[document].others = true;
  }
  // Somebody of this client got it, by requests that took so long.
  void granted(const std::string& document, const LockId& id, Clock::duration took) {
    const std::lock_guard lock(mutex_);
    const auto found = manners_.find(document);
    if (found == manners_.end()) return;
    found->second.ours = id;
    found->second.took = took;
  }
  void released(const std::string& document, const LockId& id, Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    const auto found = manners_.find(document);
    if (found == manners_.end() || found->second.ours != id) return;
    // To hear of it takes about as long as to try.
    found->second.until = found->second.others ? now + std::min<Clock::duration>(2 * found->second.took, longest) : now;
    found->second.others = false;
  }

  // How long to leave the lock to others; zero if they had their time.
  std::chrono::milliseconds left_to_others(const std::string& document, Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    const auto found = manners_.find(document);
    if (found == manners_.end() || found->second.until <= now) return std::chrono::milliseconds(0);
    return std::chrono::ceil<std::chrono::milliseconds>(found->second.until - now);
  }

 private:
  static constexpr std::chrono::milliseconds longest{250};
  // Far more than anybody fights over; those beyond begin anew.
  static constexpr std::size_t most_documents = 10'000;

  struct Manner {
    std::optional<LockId> ours;
    bool others = false;
    Clock::duration took{};
    Clock::time_point until{};
  };
  std::mutex mutex_;
  std::map<std::string, Manner, std::less<>> manners_;
};

}  // namespace syncguard::firestore
