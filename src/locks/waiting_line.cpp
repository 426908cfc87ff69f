#include "locks/waiting_line.hpp"

namespace syncguard::detail {

WaitingLine::Place::Place(WaitingLine& line, const Key& key,
                          const std::function<std::shared_ptr<async::WakeUp>()>& make_wake_up)
    : owner_(line) {
  const std::lock_guard lock(owner_.mutex_);
  line_ = &*owner_.lines_.try_emplace(key).first;
  waiter_ = line_->second.emplace(line_->second.end());
  if (waiter_ != line_->second.begin()) waiter_->wake_up = make_wake_up();
}

WaitingLine::Place::~Place() {
  const std::lock_guard lock(owner_.mutex_);
  auto& waiters = line_->second;
  const bool was_first = waiter_ == waiters.begin();
  waiters.erase(waiter_);
  if (waiters.empty()) {
    owner_.lines_.erase(owner_.lines_.find(line_->first));
  } else if (was_first) {
    waiters.front().wake_up->wake();
  }
}

bool WaitingLine::Place::is_first() const {
  const std::lock_guard lock(owner_.mutex_);
  return waiter_ == line_->second.begin();
}

}  // namespace syncguard::detail
