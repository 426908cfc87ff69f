// The names of a key's data in Redis.
#pragma once

#include <syncguard/key.hpp>
#include <syncguard/lock_id.hpp>

#include <string>
#include <string_view>

namespace syncguard::redis {

// Byte for byte identical in all SyncGuard libraries, except for the names for waiting, which only this library uses.
class Names {
 public:
  // Throws LockError(invalid_argument) for a prefix that is not UTF-8, has a NUL, or leaves no room for a key.
  explicit Names(std::string_view prefix);

  // Whether waiters form queues. Not with a long prefix, where the queue's name would have to be hashed: the scripts
  // cannot do that.
  [[nodiscard]] bool have_queues() const noexcept { return have_queues_; }

  // Throws LockError(invalid_argument) for a key whose lock would have the name of an index, a counter or a queue.
  [[nodiscard]] std::string lock(const Key& key) const;
  [[nodiscard]] std::string fence(std::string_view lock) const;
  [[nodiscard]] std::string index(const LockId& id) const;
  // Matches the names of all fence counters, in the syntax of SCAN.
  [[nodiscard]] std::string fence_pattern() const;
  // Matches the names of all locks whose keys begin with key_prefix, and some other names.
  [[nodiscard]] std::string lock_pattern(std::string_view key_prefix) const;
  // The common beginning of all names of locks that are not hashed.
  [[nodiscard]] const std::string& lock_root() const noexcept { return root_; }
  // The common beginning of all index names.
  [[nodiscard]] std::string index_root() const;

  [[nodiscard]] std::string queue(const Key& key) const { return queue_root_ + key.str(); }
  [[nodiscard]] std::string turn(const Key& key) const { return turn_root_ + key.str(); }
  // Contains a hash of the lock id, so that subscribing to all channels reveals no lock id.
  [[nodiscard]] std::string wake_channel(const LockId& waiter) const;
  [[nodiscard]] const std::string& queue_root() const noexcept { return queue_root_; }
  [[nodiscard]] const std::string& turn_root() const noexcept { return turn_root_; }
  [[nodiscard]] const std::string& wake_root() const noexcept { return wake_root_; }

 private:
  std::string prefix_;
  // "prefix:", or empty.
  std::string root_;
  std::string queue_root_;
  std::string turn_root_;
  std::string wake_root_;
  bool have_queues_;
};

}  // namespace syncguard::redis
