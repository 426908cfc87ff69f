// The in-memory backend: the reference for all others, and what tests of programs that use locks run on.
#pragma once

#include <syncguard/backend.hpp>
#include <syncguard/export.hpp>

#include <cstdint>
#include <functional>
#include <memory>

namespace syncguard {

// What is stored: locks, fence counters, queues. Clients that share one exclude each other. Thread-safe.
class SYNCGUARD_EXPORT MemoryStore {
 public:
  // The system's clock, in Unix milliseconds.
  static Timestamp system_now();

  explicit MemoryStore(std::function<Timestamp()> clock = system_now);
  MemoryStore(const MemoryStore&) = delete;
  MemoryStore& operator=(const MemoryStore&) = delete;
  ~MemoryStore();

  // For tests: sets a key's fence counter, or puts a lock there as if it had been acquired.
  void set_fence_counter(const Key& key, std::uint64_t value);
  void put(const LockRecord& record);
  // What is stored for a key, live or not.
  [[nodiscard]] std::optional<LockRecord> stored(const Key& key) const;
  [[nodiscard]] std::uint64_t fence_counter(const Key& key) const;

  // Not for users.
  struct State;
  [[nodiscard]] State& state() noexcept { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

struct MemoryOptions {
  // Without one: a store of the backend's own.
  std::shared_ptr<MemoryStore> store{};
  // Lets is_locked remove locks that expired more than two seconds ago, at most once a second.
  bool cleanup_in_is_locked = false;
};

// By URL: "memory:" has a store of its own, all "memory:NAME" of a process share one, which stays; option
// cleanup_in_is_locked.
SYNCGUARD_EXPORT std::unique_ptr<Backend> make_memory_backend(MemoryOptions options = {});

}  // namespace syncguard
