#include "backends/waiters.hpp"

#include "core/durations.hpp"

#include <algorithm>
#include <utility>

namespace syncguard::backends {
namespace {

constexpr std::hash<std::string_view> hash;

}  // namespace

bool Waiters::add(const LockId& id, Waiter waiter) {
  auto item = std::make_shared<Item>(Item{.id = id, .waiter = std::move(waiter)});
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = items_.try_emplace(id, item);
  if (!is_new) return false;
  const auto& [key, wake, name, topic] = item->waiter;
  if (!name.empty()) by_name_.emplace(hash(name), item.get());
  if (!topic.empty()) by_topic_.emplace(hash(topic), item.get());
  return true;
}

void Waiters::erase(Index& index, const std::string& text, const Item* item) {
  const auto [first, last] = index.equal_range(hash(text));
  const auto own = std::find_if(first, last, [&](const auto& entry) { return entry.second == item; });
  if (own != last) index.erase(own);
}

bool Waiters::remove(const LockId& id) {
  const std::lock_guard lock(mutex_);
  const auto removed = items_.extract(id);
  if (!removed) return false;
  Item& item = *removed.mapped();
  erase(by_name_, item.waiter.name, &item);
  erase(by_topic_, item.waiter.topic, &item);
  looks_.remove(item);
  return true;
}

bool Waiters::contains(const LockId& id) const {
  const std::lock_guard lock(mutex_);
  return items_.contains(id);
}

bool Waiters::empty() const {
  const std::lock_guard lock(mutex_);
  return items_.empty();
}

std::shared_ptr<Waiters::Item> Waiters::find(const LockId& id) const {
  const auto found = items_.find(id);
  return found != items_.end() ? found->second : nullptr;
}

std::vector<std::shared_ptr<Waiters::Item>> Waiters::find(const Index& index, std::string_view text) const {
  std::vector<std::shared_ptr<Item>> items;
  const auto [first, last] = index.equal_range(hash(text));
  std::for_each(first, last, [&](const auto& entry) { items.push_back(find(entry.second->id)); });
  return items;
}

// ---------------------------------------------------------------------------------------------------------------------
// Looks

void Waiters::schedule(const std::shared_ptr<Item>& item, Clock::time_point time) {
  item->regular_look = time;
  looks_.set(item, std::min(time, std::exchange(item->announced_look, Clock::time_point::max())));
}

void Waiters::schedule(const std::shared_ptr<Item>& item, const core::WaiterReply& reply, int crowd) {
  const auto period = core::random_between(pace_.shortest, pace_.longest) * crowd;
  schedule(item, Clock::now() + core::next_look(reply, period, core::random_fraction()));
}

Waiters::Clock::time_point Waiters::earliest() const {
  return looks_.empty() ? Clock::time_point::max() : std::max(looks_.earliest(), not_before_);
}

void Waiters::report(Clock::time_point before) {
  if (next_look() < before) sooner_();
}

Waiters::Clock::time_point Waiters::next_look() const {
  const std::lock_guard lock(mutex_);
  return earliest();
}

void Waiters::joined(const LockId& id, const core::WaiterReply& reply, std::chrono::milliseconds reservation,
                     int crowd) {
  Clock::time_point before;
  {
    const std::lock_guard lock(mutex_);
    before = earliest();
    const auto item = find(id);
    if (!item) return;
    item->reservation = reservation;
    item->place = reply.place;
    schedule(item, reply, crowd);
  }
  report(before);
}

std::optional<std::int64_t> Waiters::place(const LockId& id) const {
  const std::lock_guard lock(mutex_);
  const auto item = find(id);
  return item ? item->place : std::nullopt;
}

std::vector<Waiters::Look> Waiters::take_due(Clock::time_point time, std::size_t max_count) {
  const std::lock_guard lock(mutex_);
  std::vector<Look> due;
  try {
    while (earliest() <= time && due.size() < max_count) {
      Item& item = *looks_.earliest_item();
      due.push_back({item.id, item.waiter.key, item.reservation, *item.place});
      looks_.remove(item);
    }
  } catch (...) {
    for (const auto& look : due) schedule(find(look.id), time);
    throw;
  }
  if (!due.empty()) not_before_ = time + due.size() * pace_.per_look;
  return due;
}

void Waiters::looked(const LockId& id, const core::WaiterReply& reply, int crowd) {
  if (!reply.free_in) return wake(id);
  Clock::time_point before;
  {
    const std::lock_guard lock(mutex_);
    before = earliest();
    const auto item = find(id);
    // It was woken in the meantime.
    if (!item || !item->place) return;
    schedule(item, reply, crowd);
  }
  report(before);
}

void Waiters::look_later(const LockId& id) {
  const std::lock_guard lock(mutex_);
  const auto item = find(id);
  if (item && item->place) schedule(item, core::WaiterReply{}, 1);
}

void Waiters::look_at_topic(std::string_view topic, std::chrono::milliseconds after) {
  Clock::time_point before;
  {
    const std::lock_guard lock(mutex_);
    before = earliest();
    for (const auto& item : find(by_topic_, topic)) {
      const auto pause = core::next_look({.free_in = after}, std::chrono::milliseconds::max(), core::random_fraction());
      const auto time = Clock::now() + pause;
      if (item->heap_place == looks_.nowhere) {
        // It is joining, looking or about to try, and may have found what was before this turn.
        item->announced_look = time;
      } else {
        looks_.set(item, std::min(item->regular_look, time));
      }
    }
  }
  report(before);
}

bool Waiters::has_topic(std::string_view topic) const {
  const std::lock_guard lock(mutex_);
  return by_topic_.contains(hash(topic));
}

void Waiters::look_now() {
  Clock::time_point before;
  {
    const std::lock_guard lock(mutex_);
    before = earliest();
    looks_.set_all(Clock::now());
  }
  report(before);
}

// ---------------------------------------------------------------------------------------------------------------------
// Wake-ups

void Waiters::forget_place(Item& item) {
  item.place.reset();
  looks_.remove(item);
}

void Waiters::wake_items(std::span<const std::shared_ptr<Item>> items) {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& item : items) forget_place(*item);
  }
  for (const auto& item : items) item->waiter.wake();
}

void Waiters::wake(const LockId& id) {
  std::shared_ptr<Item> item;
  {
    const std::lock_guard lock(mutex_);
    item = find(id);
  }
  // Allocates nothing, because destructors call it.
  if (item) wake_items({&item, 1});
}

void Waiters::wake_named(std::string_view name) {
  std::vector<std::shared_ptr<Item>> items;
  {
    const std::lock_guard lock(mutex_);
    items = find(by_name_, name);
  }
  wake_items(items);
}

void Waiters::wake_all() {
  std::vector<std::shared_ptr<Item>> items;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, item] : items_) items.push_back(item);
  }
  wake_items(items);
}

}  // namespace syncguard::backends
