/// \file
/// The in-memory backend: the reference implementation, and the backend for tests of programs that use locks.
#pragma once

#include <syncguard/backend_fwd.hpp>
#include <syncguard/export.hpp>
#include <syncguard/key.hpp>
#include <syncguard/lock_info.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace syncguard {
inline namespace v0_1 {

/// Holds locks, fence counters and queues. Clients that share a store exclude each other. Thread-safe.
class SYNCGUARD_EXPORT MemoryStore {
 public:
  /// The system's clock, in Unix milliseconds.
  static Timestamp system_now();

  explicit MemoryStore(std::function<Timestamp()> clock = system_now);
  MemoryStore(const MemoryStore&) = delete;
  MemoryStore& operator=(const MemoryStore&) = delete;
  ~MemoryStore();

  /// For tests: sets a key's fence counter, or stores a lock as if it had been acquired.
  void set_fence_counter(const Key& key, std::uint64_t value);
  void put(const LockRecord& record);
  /// The stored lock of a key, live or not.
  [[nodiscard]] std::optional<LockRecord> stored(const Key& key) const;
  [[nodiscard]] std::uint64_t fence_counter(const Key& key) const;

  /// Not for users.
  struct State;
  [[nodiscard]] State& state() noexcept { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

struct MemoryOptions {
  /// If null: the backend gets its own store.
  std::shared_ptr<MemoryStore> store{};
  /// Lets is_locked remove locks that expired more than two seconds ago, at most once a second.
  bool cleanup_in_is_locked = false;
};

/// By URL: "memory:" uses a new store; all "memory:NAME" in a process share one, which stays until the process ends.
/// Option: cleanup_in_is_locked.
SYNCGUARD_EXPORT std::unique_ptr<Backend> make_memory_backend(MemoryOptions options = {});

}  // namespace v0_1
}  // namespace syncguard
