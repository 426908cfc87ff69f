// The FIFO queue of the waiters of one client: only the first waiter of a key talks to the backend.
#pragma once

#include "async/event.hpp"

#include <syncguard/key.hpp>

#include <list>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace syncguard {
inline namespace v0_1 {
namespace detail {

// Thread-safe. Must outlive its places.
class WaitQueue {
  // The event of each waiter; none if it found the queue empty.
  using Queue = std::list<std::optional<async::Event>>;
  using Queues = std::unordered_map<Key, Queue>;

 public:
  // A place in the queue of one key, given up by the destructor.
  class Place {
   public:
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place();

    [[nodiscard]] bool is_first() const;
    // Set when this place becomes the first; none if it was the first from the beginning.
    [[nodiscard]] const std::optional<async::Event>& became_first() const noexcept { return *waiter_; }

   private:
    friend class WaitQueue;
    Place(WaitQueue& queue, const Key& key);

    WaitQueue& owner_;
    Queues::value_type* queue_;  // a pointer stays valid when the map grows
    Queue::iterator waiter_;
  };

  // Joins the end of the queue.
  [[nodiscard]] Place enter(const Key& key) { return {*this, key}; }

 private:
  mutable std::mutex mutex_;
  Queues queues_;
};

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
