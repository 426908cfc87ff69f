#include "backends/waiters.hpp"

#include <utility>

namespace syncguard::backends {

bool Waiters::add(const LockId& waiter, std::function<void()> wake, std::string topic) {
  const std::lock_guard lock(mutex_);
  return waiters_.try_emplace(waiter, Waiter{std::move(wake), std::move(topic)}).second;
}

std::optional<std::string> Waiters::remove(const LockId& waiter) {
  const std::lock_guard lock(mutex_);
  auto removed = waiters_.extract(waiter);
  if (!removed) return std::nullopt;
  return std::move(removed.mapped().topic);
}

bool Waiters::contains(const LockId& waiter) const {
  const std::lock_guard lock(mutex_);
  return waiters_.contains(waiter);
}

std::vector<LockId> Waiters::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<LockId> ids;
  for (const auto& [id, waiter] : waiters_) ids.push_back(id);
  return ids;
}

void Waiters::wake(const LockId& waiter) const {
  std::function<void()> wake;
  {
    const std::lock_guard lock(mutex_);
    const auto found = waiters_.find(waiter);
    if (found != waiters_.end()) wake = found->second.wake;
  }
  if (wake) wake();
}

void Waiters::wake_topic(const std::string& topic) const {
  wake_if([&](const Waiter& waiter) { return waiter.topic == topic; });
}

void Waiters::wake_all() const {
  wake_if([](const Waiter&) { return true; });
}

template <typename Condition>
void Waiters::wake_if(Condition condition) const {
  std::vector<std::function<void()>> wakes;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, waiter] : waiters_) {
      if (condition(waiter)) wakes.push_back(waiter.wake);
    }
  }
  for (const auto& wake : wakes) wake();
}

}  // namespace syncguard::backends
