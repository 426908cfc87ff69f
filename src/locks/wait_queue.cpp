#include "locks/wait_queue.hpp"

#include <utility>

namespace syncguard {
inline namespace v0_1 {
namespace detail {

WaitQueue::Place::Place(WaitQueue& queue, const Key& key) : owner_(queue) {
  const std::lock_guard lock(owner_.mutex_);
  queue_ = &*owner_.queues_.try_emplace(key).first;
  auto& waiters = queue_->second;
  try {
    std::optional<async::Event> became_first;
    if (!waiters.empty()) became_first.emplace();
    waiter_ = waiters.insert(waiters.end(), std::move(became_first));
  } catch (...) {
    if (waiters.empty()) owner_.queues_.erase(key);
    throw;
  }
}

WaitQueue::Place::~Place() {
  const std::lock_guard lock(owner_.mutex_);
  auto& waiters = queue_->second;
  const bool was_first = waiter_ == waiters.begin();
  waiters.erase(waiter_);
  if (waiters.empty()) {
    owner_.queues_.erase(owner_.queues_.find(queue_->first));
  } else if (was_first) {
    waiters.front()->set();
  }
}

bool WaitQueue::Place::is_first() const {
  const std::lock_guard lock(owner_.mutex_);
  return waiter_ == queue_->second.begin();
}

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
