// The waiters of one client, which a server wakes.
#pragma once

#include <syncguard/lock_id.hpp>

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace syncguard::backends {

// Holds a function for each waiter that makes it try again. Thread-safe. Functions are called without a mutex held, so
// one may still be called just after its waiter was removed.
class Waiters {
 public:
  // Returns false and changes nothing if the waiter already exists. All waiters of a topic can be woken together.
  bool add(const LockId& waiter, std::function<void()> wake, std::string topic = {});
  // Returns its topic, if it existed.
  std::optional<std::string> remove(const LockId& waiter);

  [[nodiscard]] bool contains(const LockId& waiter) const;
  [[nodiscard]] std::vector<LockId> all() const;

  // Does nothing if the waiter does not exist.
  void wake(const LockId& waiter) const;
  void wake_topic(const std::string& topic) const;
  void wake_all() const;

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

}  // namespace syncguard::backends
