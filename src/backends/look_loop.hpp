// Lets the waiters of a client look at their keys, in a coroutine.
#pragma once

#include "async/event.hpp"
#include "backends/waiters.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <vector>

namespace syncguard::backends {

// Runs while there are waiters. Thread-safe.
class LookLoop : public std::enable_shared_from_this<LookLoop> {
 public:
  // Makes these looks, and reports each to waiters() with looked() or look_later(). Throws only if there is no memory.
  using Look = std::function<asio::awaitable<void>(std::vector<Waiters::Look> due)>;

  // max_count: how many looks are made at once.
  LookLoop(Waiters::Pace pace, std::size_t max_count)
      : pace_(pace), max_count_(max_count), waiters_(pace, [changed = changed_] { changed.set(); }) {}

  [[nodiscard]] Waiters& waiters() noexcept { return waiters_; }
  // Call this after a waiter was added or has joined again. Does nothing if the loop is running.
  void start(const asio::any_io_executor& executor, Look look);
  void close() { std::stop_source(stop_).request_stop(); }

 private:
  class Running;

  asio::awaitable<void> run(Look look, Running running);

  const Waiters::Pace pace_;
  const std::size_t max_count_;
  const std::stop_source stop_;
  const async::Event changed_;
  Waiters waiters_;
  std::mutex mutex_;
  bool is_running_ = false;
};

}  // namespace syncguard::backends
