// The acquires of a client that are in doubt, until they are retracted or expire.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <stop_token>
#include <utility>

namespace syncguard {
inline namespace v0_1 {
namespace detail {

// Bounded, so that a store that is unreachable for hours costs a limited amount of memory and requests. When it is
// full, the entry that expires soonest is dropped, because its lock stays held for the shortest time. Thread-safe. Must
// outlive its entries.
class InDoubtAcquires {
 public:
  // On the steady clock.
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::size_t default_capacity = 4096;

  explicit InDoubtAcquires(std::size_t capacity = default_capacity) : capacity_(capacity) {}

  // Remembers one acquire while in scope, or until it is dropped.
  class Entry {
   public:
    // If the limit is reached, drops the entry that expires soonest, which may be this one.
    Entry(InDoubtAcquires& owner, Time expires_at);
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry();

    // Stopped when this entry is dropped.
    [[nodiscard]] std::stop_token dropped() const noexcept { return dropped_.get_token(); }
    // How many entries had been dropped in total when this one was added; 0 if adding it did not drop any.
    [[nodiscard]] std::uint64_t dropped_so_far() const noexcept { return dropped_so_far_; }

   private:
    InDoubtAcquires& owner_;
    const std::stop_source dropped_;
    std::pair<Time, std::uint64_t> place_;
    std::uint64_t dropped_so_far_ = 0;
  };

  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  const std::size_t capacity_;
  mutable std::mutex mutex_;
  // Ordered by expiry; the number distinguishes entries with the same expiry.
  std::map<std::pair<Time, std::uint64_t>, std::stop_source> entries_;
  std::uint64_t next_number_ = 0;
  std::uint64_t dropped_ = 0;
};

inline InDoubtAcquires::Entry::Entry(InDoubtAcquires& owner, Time expires_at) : owner_(owner) {
  std::stop_source evicted(std::nostopstate);
  {
    const std::lock_guard lock(owner_.mutex_);
    place_ = {expires_at, owner_.next_number_++};
    owner_.entries_.emplace(place_, dropped_);
    if (owner_.entries_.size() > owner_.capacity_) {
      evicted = owner_.entries_.extract(owner_.entries_.begin()).mapped();
      dropped_so_far_ = ++owner_.dropped_;
    }
  }
  // Without the mutex, because request_stop() runs stop callbacks.
  evicted.request_stop();
}

inline InDoubtAcquires::Entry::~Entry() {
  const std::lock_guard lock(owner_.mutex_);
  owner_.entries_.erase(place_);
}

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
