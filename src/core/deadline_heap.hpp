// A priority queue of deadlines.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace syncguard::core {

// A binary heap of items that store their own position in it (`std::size_t heap_place`), so that one can be moved or
// removed in logarithmic time without a search. Needs one entry per item and no other memory, because a client may have
// a hundred thousand leases. Only adding an item allocates.
template <typename Item, typename Time>
class DeadlineHeap {
 public:
  static constexpr std::size_t nowhere = static_cast<std::size_t>(-1);

  struct Entry {
    Time due;
    std::shared_ptr<Item> item;
  };

  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  [[nodiscard]] Time earliest() const { return entries_.front().due; }
  [[nodiscard]] const std::shared_ptr<Item>& earliest_item() const { return entries_.front().item; }
  // The time of an item; nullopt if the heap does not contain it.
  [[nodiscard]] std::optional<Time> due(const Item& item) const {
    if (item.heap_place == nowhere) return std::nullopt;
    return entries_[item.heap_place].due;
  }

  // Adds the item, or moves it to another time.
  void set(const std::shared_ptr<Item>& item, Time due) {
    if (item->heap_place == nowhere) {
      entries_.push_back({due, item});
      item->heap_place = entries_.size() - 1;
    } else {
      entries_[item->heap_place].due = due;
    }
    sift(item->heap_place);
  }

  void remove(Item& item) {
    const std::size_t place = item.heap_place;
    if (place == nowhere) return;
    item.heap_place = nowhere;
    // Kept alive until the heap is consistent again, because this may be the last reference.
    const std::shared_ptr<Item> removed = std::move(entries_[place].item);
    if (place + 1 != entries_.size()) {
      entries_[place] = std::move(entries_.back());
      entries_[place].item->heap_place = place;
    }
    entries_.pop_back();
    if (place < entries_.size()) sift(place);
  }

  // Moves all items to the same time.
  void set_all(Time due) {
    for (auto& entry : entries_) entry.due = due;
  }

  // Empties the heap.
  std::vector<Entry> take_all() noexcept {
    for (auto& entry : entries_) entry.item->heap_place = nowhere;
    return std::exchange(entries_, {});
  }

 private:
  void sift(std::size_t place) {
    while (place > 0 && entries_[place].due < entries_[(place - 1) / 2].due) {
      swap(place, (place - 1) / 2);
      place = (place - 1) / 2;
    }
    for (;;) {
      std::size_t least = place;
      for (const std::size_t child : {2 * place + 1, 2 * place + 2}) {
        if (child < entries_.size() && entries_[child].due < entries_[least].due) least = child;
      }
      if (least == place) return;
      swap(place, least);
      place = least;
    }
  }

  void swap(std::size_t a, std::size_t b) {
    std::swap(entries_[a], entries_[b]);
    entries_[a].item->heap_place = a;
    entries_[b].item->heap_place = b;
  }

  std::vector<Entry> entries_;
};

}  // namespace syncguard::core
