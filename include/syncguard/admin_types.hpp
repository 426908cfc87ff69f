/// \file
/// The arguments and results of Admin: listing, inspecting and cleaning up locks.
#pragma once

#include <syncguard/lock_info.hpp>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace syncguard {
inline namespace v0_1 {

/// Which live locks to list. The texts are read when the call starts and need not live longer.
struct ListOptions {
  static constexpr std::size_t max_limit = 1000;

  /// Only locks whose key begins with this; empty: all.
  std::string_view prefix{};
  /// The maximum number of locks in a page, from 1 to max_limit.
  std::size_t limit = 100;
  /// Where to continue: LockPage::cursor of the previous page. Empty: at the beginning.
  std::string_view cursor{};
};
static_assert(std::is_trivially_copyable_v<ListOptions>);

/// A live lock, for people. It contains the raw key, and no id that could release the lock.
struct ListedLock {
  Key key;
  Timestamp expires_at;
  Timestamp acquired_at;
  Fence fence;
  /// As in LockRecord.
  std::string holder{};
  /// How many clients wait for the key. nullopt if the store keeps no queue, as Firestore.
  std::optional<std::size_t> waiters{};

  friend bool operator==(const ListedLock&, const ListedLock&) = default;
};

/// A page of a list. It may have fewer locks than the limit, even none, although there are more.
struct LockPage {
  std::vector<ListedLock> locks{};
  /// Where the next page begins; empty if this is the last one.
  std::string cursor{};
  /// The time on the store's clock.
  Timestamp now{};
};

/// One holder of a key, for people. It contains no id that could release the lock.
struct Holder {
  Fence fence;
  Timestamp acquired_at;
  Timestamp expires_at;
  /// As LockRecord::holder.
  std::string label{};

  friend bool operator==(const Holder&, const Holder&) = default;
};

/// The state of one key.
struct KeyState {
  /// The live holders of the key, sorted by fence; none if it is free. An exclusive lock has one.
  std::vector<Holder> holders{};
  /// How many clients wait for the key, if it is held. nullopt if it is free, or if the store keeps no queue.
  std::optional<std::size_t> waiters{};
  /// The key's fence counter: the newest fence that was granted, or the value it was raised to. Zero if there is none.
  Fence fence{};
  /// The time on the store's clock.
  Timestamp now{};
};

struct WatchOptions {
  /// How often to look at the key; positive.
  std::chrono::milliseconds interval{1000};
};
static_assert(std::is_trivially_copyable_v<WatchOptions>);

/// Which expired locks to remove or count.
struct CleanupRequest {
  enum class Mode { remove, count };

  /// Locks that expired longer ago than this by the store's clock. The minimum is two seconds: the tolerance, plus a
  /// margin for an extend that is in flight.
  std::chrono::milliseconds older_than{0};
  /// The maximum number to remove per call; a backend may remove fewer. Counting has no limit.
  std::size_t limit = 1000;
  Mode mode = Mode::remove;
};
static_assert(std::is_trivially_copyable_v<CleanupRequest>);

struct CleanupReply {
  /// How many locks were removed. With Mode::count, how many there are: all of them.
  std::size_t count = 0;
  /// Whether there may be more to remove. Always false with Mode::count.
  bool more = false;
  /// Why this store never needs cleanup; empty if it may.
  std::string nothing_to_do{};
};

}  // namespace v0_1
}  // namespace syncguard
