// Notices turns that no waiter took.
#pragma once

#include "backends/redis/names.hpp"
#include "backends/redis/protocol.hpp"

#include <syncguard/log.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
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
  struct Actions {
    // Runs lua/poll.lua. Throws LockError.
    std::function<asio::awaitable<Reply>(const Arguments& arguments)> run;
    // Lets this waiter try.
    std::function<void(const LockId& id)> wake;
  };

  TurnPoll(Log log, Names names) : log_(std::move(log)), names_(std::move(names)) {}

  struct Waiter {
    Key key;
    std::chrono::milliseconds reservation{};
  };
  // Does nothing if the waiter already exists. All waiters use the executor and the actions of the first one.
  void add(const asio::any_io_executor& executor, const Actions& actions, const LockId& id, Waiter waiter);
  void remove(const LockId& id);
  // Sets the waiter's place in the queue, as returned by lua/join.lua. A waiter without a place is about to try.
  void set_place(const LockId& id, std::string place);
  void forget_place(const LockId& id) { set_place(id, {}); }

  void close() { std::stop_source(stop_).request_stop(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    Waiter waiter;
    std::string place{};
    // How many rounds leave this waiter out.
    std::int64_t rounds_left_out = 0;
  };

  asio::awaitable<void> poll_until_empty(Actions actions);
  asio::awaitable<Duration> poll(const Actions& actions, std::vector<LockId> ids);
  // The waiters to poll now, or nullopt if there are no waiters at all: polling then ends.
  std::optional<std::vector<LockId>> waiters_of_next_round();
  Arguments arguments_for(std::vector<LockId>& ids);
  void leave_out(const LockId& id, std::int64_t rounds);

  const Log log_;
  const Names names_;
  const std::stop_source stop_;
  std::mutex mutex_;
  bool polling_ = false;
  std::minstd_rand random_{std::random_device{}()};
  std::unordered_map<LockId, Entry> entries_;
};

}  // namespace syncguard::redis
