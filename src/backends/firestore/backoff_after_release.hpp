// Fairness between clients that share no queue.
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

// The client that releases a lock could acquire it again long before others learn of the release, and Firestore keeps
// no queue. So a client that saw contention on a lock backs off briefly after releasing it, for as long as other
// clients need to notice and try. Decides order only, never safety.
class BackoffAfterRelease {
 public:
  using Clock = std::chrono::steady_clock;

  // A caller of this client found the lock held.
  void observed_holder(const std::string& document, const LockId& holder) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(document);
    // The threads of this client have their own queue.
    if (found != entries_.end() && found->second.own_lock == holder) return;
    if (found == entries_.end() && entries_.size() >= max_documents) entries_.clear();
    entries_[document].saw_other_holder = true;
  }
  // A caller of this client acquired it; took is the duration of the requests.
  void granted(const std::string& document, const LockId& id, Clock::duration took) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(document);
    if (found == entries_.end()) return;
    found->second.own_lock = id;
    found->second.took = took;
  }
  void released(const std::string& document, const LockId& id, Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(document);
    if (found == entries_.end() || found->second.own_lock != id) return;
    // Noticing the release takes about as long as an attempt.
    found->second.until =
        found->second.saw_other_holder ? now + std::min<Clock::duration>(2 * found->second.took, max_backoff) : now;
    found->second.saw_other_holder = false;
  }

  // How long to keep backing off; zero if other clients had their chance.
  std::chrono::milliseconds remaining_backoff(const std::string& document, Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(document);
    if (found == entries_.end() || found->second.until <= now) return std::chrono::milliseconds(0);
    return std::chrono::ceil<std::chrono::milliseconds>(found->second.until - now);
  }

 private:
  static constexpr std::chrono::milliseconds max_backoff{250};
  // Far more than are usually contended. At this limit, the table is cleared.
  static constexpr std::size_t max_documents = 10'000;

  struct Entry {
    std::optional<LockId> own_lock;
    bool saw_other_holder = false;  // since the last release
    Clock::duration took{};
    Clock::time_point until{};
  };
  std::mutex mutex_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace syncguard::firestore
