// Where a key's data lives in Redis.
#pragma once

#include <syncguard/key.hpp>
#include <syncguard/lock_id.hpp>

#include <string>

namespace syncguard::redis {

// Shared with every other SyncGuard, byte for byte; the names for waiting only with those of ours.
class Names {
 public:
  // Throws LockError(invalid_argument) for a prefix that is not UTF-8, has a NUL, or leaves no room for a key.
  explicit Names(std::string_view prefix);

  // Whether waiters form queues. Not with prefixes so long that the queue's name would have to be hashed, which the
  // scripts cannot do.
  [[nodiscard]] bool have_queues() const noexcept { return have_queues_; }

  // Throws LockError(invalid_argument) for a key whose lock would take the place of another one's index, counter or
  // queue.
  [[nodiscard]] std::string lock(const Key& key) const;
  [[nodiscard]] std::string fence(std::string_view lock) const;
  [[nodiscard]] std::string index(const LockId& id) const;
  // What all indexes begin with.
  [[nodiscard]] std::string index_root() const;

  [[nodiscard]] std::string queue(const Key& key) const { return queue_root_ + key.str(); }
  [[nodiscard]] std::string turn(const Key& key) const { return turn_root_ + key.str(); }
  [[nodiscard]] std::string wake_channel(const LockId& waiter) const { return wake_root_ + waiter.str(); }
  [[nodiscard]] const std::string& queue_root() const noexcept { return queue_root_; }
  [[nodiscard]] const std::string& turn_root() const noexcept { return turn_root_; }
  [[nodiscard]] const std::string& wake_root() const noexcept { return wake_root_; }

 private:
  std::string prefix_;
  // prefix: or nothing.
  std::string root_;
  std::string queue_root_;
  std::string turn_root_;
  std::string wake_root_;
  bool have_queues_;
};

}  // namespace syncguard::redis
