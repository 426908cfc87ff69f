// Who waits to hear from a server that it may be their turn.
#pragma once

#include <syncguard/lock_id.hpp>

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace syncguard::net {

// What each waiter wants to be called when it should try. Any thread. Functions are called without a lock held, so that
// one may still be called just after its waiter was removed.
class Waiters {
 public:
  // False, and nothing changes, if the waiter is there already. Of the topic, all that wait can be woken at once.
  bool add(const LockId& waiter, std::function<void()> wake, std::string topic = {});
  // Its topic, if it was there.
  std::optional<std::string> remove(const LockId& waiter);

  [[nodiscard]] bool contains(const LockId& waiter) const;
  [[nodiscard]] std::vector<LockId> everybody() const;

  // Nothing happens if it is not there.
  void wake(const LockId& waiter) const;
  void wake_all_of(const std::string& topic) const;
  void wake_everybody() const;

 private:
  struct Waiter {
    std::function<void()> wake;
    std::string topic;
  };

  template <typename Condition>
  void wake_if(Condition condition) const;

  mutable std::mutex mutex_;
  std::unordered_map<LockId, Waiter> waiters_;
};

}  // namespace syncguard::net
