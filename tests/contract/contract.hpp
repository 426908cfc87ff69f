// Shared by the tests of the suite. Uses the public API only, because the suite is installed.
#pragma once

#include "support/eventually.hpp"
#include "support/expect_error.hpp"
#include "support/long_timeouts.hpp"
#include "support/signal.hpp"

#include <syncguard/async.hpp>
#include <syncguard/backend.hpp>
#include <syncguard/syncguard.hpp>
#include <syncguard/testing/contract_suite.hpp>

#include <asio/co_spawn.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/use_future.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace syncguard::testing {

using namespace std::chrono_literals;

// Calls a backend directly, without a client: runs one coroutine at a time and returns its result.
class RawBackend {
 public:
  explicit RawBackend(std::unique_ptr<Backend> backend)
      : backend_(std::move(backend)), thread_([this] { context_.run(); }) {}
  RawBackend(const RawBackend&) = delete;
  RawBackend& operator=(const RawBackend&) = delete;
  ~RawBackend() {
    const auto limits = limits_for({});
    run(backend_->close(limits));
    work_.reset();
    thread_.join();
  }

  Backend& operator*() { return *backend_; }

  static CallLimits limits_for(std::stop_token stop, std::chrono::milliseconds timeout = 20s) {
    return {std::move(stop), std::chrono::steady_clock::now() + timeout};
  }

  AcquireReply acquire(const Key& key, const LockId& id, std::chrono::milliseconds ttl, std::stop_token stop = {}) {
    const AcquireRequest request{key, id, ttl};
    const auto limits = limits_for(std::move(stop));
    return run(backend_->acquire(request, limits));
  }
  ReleaseReply release(const LockId& id, std::stop_token stop = {}) {
    const auto limits = limits_for(std::move(stop));
    return run(backend_->release(id, limits));
  }
  ExtendReply extend(const LockId& id, std::chrono::milliseconds ttl, std::stop_token stop = {}) {
    const auto limits = limits_for(std::move(stop));
    return run(backend_->extend(id, ttl, limits));
  }
  bool is_locked(const Key& key, std::stop_token stop = {}) {
    const auto limits = limits_for(std::move(stop));
    return run(backend_->is_locked(key, limits));
  }
  std::optional<LockRecord> lookup(const Key& key, std::stop_token stop = {}) {
    const auto limits = limits_for(std::move(stop));
    return run(backend_->lookup(key, limits));
  }
  std::optional<LockRecord> lookup(const LockId& id, std::stop_token stop = {}) {
    const auto limits = limits_for(std::move(stop));
    return run(backend_->lookup(id, limits));
  }

  std::unique_ptr<WaitTicket> join(const Key& key, const LockId& waiter, std::function<void()> wake) {
    const AcquireRequest request{key, waiter, 30s};
    const auto limits = limits_for({});
    return run(backend_->join(request, std::move(wake), limits));
  }

  CleanupReply clean_up(const CleanupRequest& request, std::stop_token stop = {}) {
    const auto limits = limits_for(std::move(stop));
    return run(backend_->clean_up(request, limits));
  }

  // Locks all keys, many at a time.
  void acquire_all(const std::vector<std::string>& keys, std::chrono::milliseconds ttl) {
    constexpr std::size_t at_a_time = 50;
    const auto limits = limits_for({}, 5min);
    for (std::size_t begin = 0; begin < keys.size(); begin += at_a_time) {
      const auto end = std::min(begin + at_a_time, keys.size());
      std::vector<AcquireRequest> requests;
      for (std::size_t i = begin; i < end; ++i) {
        requests.push_back(
            {.key = keys[i], .lock_id = LockId::generate(), .ttl = ttl, .holder = "holder of " + keys[i]});
      }
      std::vector<std::future<AcquireReply>> replies;
      for (const auto& request : requests) {
        replies.push_back(asio::co_spawn(context_, backend_->acquire(request, limits), asio::use_future));
      }
      for (auto& reply : replies) {
        if (!std::holds_alternative<Granted>(reply.get())) throw std::logic_error("a lock was not granted");
      }
    }
  }

  template <typename Result>
  Result run(asio::awaitable<Result> operation) {
    return asio::co_spawn(context_, std::move(operation), asio::use_future).get();
  }

 private:
  asio::io_context context_;
  asio::executor_work_guard<asio::io_context::executor_type> work_{context_.get_executor()};
  std::unique_ptr<Backend> backend_;
  std::thread thread_;
};

// A counter far ahead of any clock, so that the fence after it is counter + 1 on every store.
inline constexpr std::uint64_t ahead_of_clock = 50'000'000'000'000;

inline Locks open_client(BackendFixture& store, ClientOptions options = {}) {
  auto backend = store.make_backend({.log = options.log});
  return Locks(std::move(backend), with_long_timeout(std::move(options)));
}

inline const Granted& granted(const AcquireReply& reply) {
  if (!std::holds_alternative<Granted>(reply)) throw std::logic_error("the lock was not granted");
  return std::get<Granted>(reply);
}
inline bool contended(const AcquireReply& reply) { return std::holds_alternative<Contended>(reply); }
inline bool released(const ReleaseReply& reply) { return std::holds_alternative<Released>(reply); }
inline bool extended(const ExtendReply& reply) { return std::holds_alternative<Extended>(reply); }

// Jain's fairness index: 1 if all counts are equal, 1/n if one of n has everything.
inline double jain(const std::vector<int>& counts) {
  double sum = 0;
  double squares = 0;
  for (const int count : counts) {
    sum += count;
    squares += static_cast<double>(count) * count;
  }
  return squares == 0 ? 0 : sum * sum / (static_cast<double>(counts.size()) * squares);
}

}  // namespace syncguard::testing
