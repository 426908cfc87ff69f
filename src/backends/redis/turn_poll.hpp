// Notices turns that no waiter took.
#pragma once

#include "backends/redis/names.hpp"
#include "backends/redis/protocol.hpp"

#include <syncguard/log.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

namespace syncguard::redis {

// A release reserves its key for the oldest waiter. If that waiter is dead or frozen, the server wakes no other one
// when the reservation ends: Redis has no timers. So a client with waiters polls their keys a few times a second, with
// one request for many waiters. See docs/adr/0021-polling-for-lapsed-turns.md. Thread-safe.
class TurnPoll : public std::enable_shared_from_this<TurnPoll> {
 public:
  using Duration = std::chrono::steady_clock::duration;
  // Runs lua/poll.lua. Throws LockError.
  using Run = std::function<asio::awaitable<Reply>(const Arguments& arguments)>;

  explicit TurnPoll(Log log) : log_(std::move(log)) {}

  struct Waiter {
    std::string lock_name{};
    std::string turn_name{};
    std::string queue_name{};
    std::chrono::milliseconds reservation{};
    // Called on any thread.
    std::function<void()> wake{};
  };
  // Does nothing if the waiter already exists. All waiters use the executor and the function of the first one.
  void add(const asio::any_io_executor& executor, const Run& run, const LockId& id, Waiter waiter);
  void remove(const LockId& id);
  // Sets the waiter's place in the queue, as returned by lua/join.lua. A waiter without a place is about to try.
  void set_place(const LockId& id, std::string place);
  void forget_place(const LockId& id) { set_place(id, {}); }

  void close() { std::stop_source(stop_).request_stop(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    Waiter waiter{};
    std::string place{};
  };

  asio::awaitable<void> poll_until_empty(Run run);
  asio::awaitable<Duration> poll(const Run& run, std::vector<LockId> ids);
  std::vector<LockId> waiters();
  Arguments arguments_for(std::vector<LockId>& ids);
  void wake(const LockId& id);

  const Log log_;
  const std::stop_source stop_;
  std::mutex mutex_;
  bool polling_ = false;
  std::unordered_map<LockId, Entry> entries_;
};

}  // namespace syncguard::redis
