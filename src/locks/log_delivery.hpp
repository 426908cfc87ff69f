// Waits for the delivery of log messages without blocking a thread.
#pragma once

#include <syncguard/log.hpp>

#include <asio/awaitable.hpp>

#include <chrono>

namespace syncguard {
inline namespace v0_1 {
namespace detail {

struct LogAccess {
  // Returns when all earlier messages have been delivered, or at the given time on the steady clock.
  static asio::awaitable<void> delivered(Log log, std::chrono::steady_clock::time_point until);
};

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
