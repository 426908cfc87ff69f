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

  // Without the colons at its end.
  [[nodiscard]] const std::string& prefix() const noexcept { return prefix_; }
  // Whether waiters form queues. Not with prefixes so long that the queue's name would have to be hashed, which the
  // scripts cannot do.
  [[nodiscard]] bool have_queues() const noexcept { return have_queues_; }

  // Throws LockError(invalid_argument) for a key whose lock would take the place of another one's index or counter.
  [[nodiscard]] std::string lock(const Key& key) const;
  [[nodiscard]] std::string fence(std::string_view lock) const;
  [[nodiscard]] std::string index(const LockId& id) const;
  // What all indexes begin with.
  [[nodiscard]] std::string index_root() const;

  [[nodiscard]] std::string queue(const Key& key) const { return prefix_ + "-queue:" + key.str(); }
  [[nodiscard]] std::string turn(const Key& key) const { return prefix_ + "-turn:" + key.str(); }
  [[nodiscard]] std::string wake_channel(const LockId& waiter) const { return prefix_ + "-wake:" + waiter.str(); }

 private:
  std::string prefix_;
  // prefix: or nothing.
  std::string root_;
  bool have_queues_;
};

}  // namespace syncguard::redis
