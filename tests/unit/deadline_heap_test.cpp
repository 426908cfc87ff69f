#include "core/deadline_heap.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace syncguard::core {
namespace {

struct Item {
  std::size_t heap_place = static_cast<std::size_t>(-1);
  int id = 0;
};

using Heap = DeadlineHeap<Item, int>;

TEST(DeadlineHeap, MatchesOrderedMapUnderRandomChanges) {
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): repeatable on purpose
  Heap heap;
  std::vector<std::shared_ptr<Item>> items;
  for (int id = 0; id < 200; ++id) items.push_back(std::make_shared<Item>(Item{.id = id}));
  std::map<int, int> due;  // by item
  for (int step = 0; step < 20'000; ++step) {
    const auto& item = items[random() % items.size()];
    if (random() % 3 == 0) {
      heap.remove(*item);
      due.erase(item->id);
    } else {
      const int time = static_cast<int>(random() % 1000);
      heap.set(item, time);
      due[item->id] = time;
    }
    ASSERT_EQ(heap.size(), due.size());
    if (due.empty()) continue;
    int earliest = due.begin()->second;
    for (const auto& [id, time] : due) earliest = std::min(earliest, time);
    ASSERT_EQ(heap.earliest(), earliest);
    ASSERT_EQ(due.at(heap.earliest_item()->id), earliest);
  }
}

TEST(DeadlineHeap, SetAllMovesEveryItem) {
  Heap heap;
  const auto late = std::make_shared<Item>(Item{.id = 1});
  heap.set(std::make_shared<Item>(Item{.id = 2}), 5);
  heap.set(late, 9);
  heap.set_all(3);
  EXPECT_EQ(heap.due(*late), 3);
  heap.set(late, 2);
  EXPECT_EQ(heap.earliest_item(), late);
  heap.remove(*late);
  EXPECT_EQ(heap.due(*late), std::nullopt);
  EXPECT_EQ(heap.earliest(), 3);
}

TEST(DeadlineHeap, TakeAllReturnsAndClears) {
  Heap heap;
  const auto item = std::make_shared<Item>();
  heap.set(item, 5);
  EXPECT_EQ(heap.take_all().size(), 1U);
  EXPECT_TRUE(heap.empty());
  EXPECT_EQ(item->heap_place, Heap::nowhere);
  EXPECT_EQ(item.use_count(), 1);
}

}  // namespace
}  // namespace syncguard::core
