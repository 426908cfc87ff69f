// The waiters of one client: how to wake each, and when each looks at its key.
#pragma once

#include "core/deadline_heap.hpp"
#include "core/key_rules.hpp"

#include <syncguard/key.hpp>
#include <syncguard/lock_id.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace syncguard::backends {

// A release wakes one waiter. Waiters notice everything else by looking at their key again and again: that the holder's
// lock expired, that another library released it, that a turn lapsed, that their own entry was removed
// (core/key_rules.hpp). A backend does what take_due() says and reports what each waiter found with looked().
//
// Thread-safe. Functions are called without a mutex held, so one may still be called just after its waiter was removed.
class Waiters {
 public:
  using Clock = std::chrono::steady_clock;

  struct Pace {
    // The pause between two looks of one waiter: random, so that waiters that joined together do not look together.
    std::chrono::milliseconds shortest{200};
    std::chrono::milliseconds longest{300};
    // What one look costs the store, times about twenty: with very many waiters, each looks less often.
    std::chrono::microseconds per_look{100};
  };

  // sooner: called when the next look is earlier than it was, and must not call back.
  explicit Waiters(
      Pace pace, std::function<void()> sooner = [] {})
      : pace_(pace), sooner_(std::move(sooner)) {}

  struct Waiter {
    Key key;
    std::function<void()> wake;  // lets the waiter try
    std::string name{};          // what messages call it, see wake_named()
    std::string topic{};         // its key in messages, see look_at_topic()
  };
  // Returns false and changes nothing if the waiter already exists. It does not look before it has joined.
  bool add(const LockId& id, Waiter waiter);
  // Returns false if it did not exist.
  bool remove(const LockId& id);
  [[nodiscard]] bool contains(const LockId& id) const;
  [[nodiscard]] bool empty() const;

  // The waiter has joined the queue with this request, and found this. crowd: how many times as long the pause between
  // its looks is, because so many others wait for the same key.
  void joined(const LockId& id, const core::WaiterReply& reply, std::chrono::milliseconds reservation, int crowd = 1);

  // Its place in the queue; nullopt if it has none, or was woken since.
  [[nodiscard]] std::optional<std::int64_t> place(const LockId& id) const;

  // Those that look now, at most max_count. Each looks again only after looked() or look_later().
  struct Look {
    LockId id;
    Key key;
    std::chrono::milliseconds reservation;
    std::int64_t place;

    [[nodiscard]] core::WaiterRequest request() const { return {id, reservation, place}; }
  };
  [[nodiscard]] std::vector<Look> take_due(Clock::time_point time, std::size_t max_count);
  // When take_due() returns the next ones; time_point::max() if no waiter will look.
  [[nodiscard]] Clock::time_point next_look() const;
  // What a waiter found: wakes it, or lets it look again.
  void looked(const LockId& id, const core::WaiterReply& reply, int crowd = 1);
  // A look failed.
  void look_later(const LockId& id);

  // A woken waiter does not look until it has joined again: it is about to try, and has used its place.
  void wake(const LockId& id);
  void wake_named(std::string_view name);
  void wake_all();

  // The waiters of a topic look after this time, plus a random one, instead of at an earlier announced time. They never
  // look later than they would without this. For turns that other waiters got: the last one counts.
  void look_at_topic(std::string_view topic, std::chrono::milliseconds after);
  // Whether there are waiters of this topic.
  [[nodiscard]] bool has_topic(std::string_view topic) const;
  // All waiters look as soon as possible: messages may have been missed.
  void look_now();

 private:
  struct Item {
    LockId id;
    Waiter waiter;
    std::chrono::milliseconds reservation{};
    std::optional<std::int64_t> place{};
    // Without what look_at_topic() announced.
    Clock::time_point regular_look{};
    // Announced while it was looking.
    Clock::time_point announced_look = Clock::time_point::max();
    std::size_t heap_place = static_cast<std::size_t>(-1);
  };
  using Items = std::unordered_map<LockId, std::shared_ptr<Item>>;
  using Index = std::unordered_multimap<std::size_t, Item*>;

  static void erase(Index& index, const std::string& text, const Item* item);
  // These need the mutex.
  [[nodiscard]] std::shared_ptr<Item> find(const LockId& id) const;
  [[nodiscard]] std::vector<std::shared_ptr<Item>> find(const Index& index, std::string_view text) const;
  void schedule(const std::shared_ptr<Item>& item, Clock::time_point time);
  void schedule(const std::shared_ptr<Item>& item, const core::WaiterReply& reply, int crowd);
  [[nodiscard]] Clock::time_point earliest() const;
  void forget_place(Item& item);
  // Calls sooner_ if the next look is earlier than before. Called without the mutex.
  void report(Clock::time_point before);

  void wake_items(std::span<const std::shared_ptr<Item>> items);

  const Pace pace_;
  const std::function<void()> sooner_;
  mutable std::mutex mutex_;
  Items items_;
  // By the hash of the text, because that takes less memory. A wrong match costs a look or an attempt.
  Index by_name_;
  Index by_topic_;
  core::DeadlineHeap<Item, Clock::time_point> looks_;
  Clock::time_point not_before_{};
};

}  // namespace syncguard::backends
