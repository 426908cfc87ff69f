/// \file
/// Internal: who makes a call.
#pragma once

#include <stop_token>
#include <thread>
#include <utility>

namespace syncguard {
inline namespace v0_1 {
namespace detail {

// What can stop a call, and the thread that only waits for its result; none for asynchronous calls.
struct Caller {
  Caller(std::stop_token token) : stop(std::move(token)) {}  // NOLINT(google-explicit-constructor)
  // A call by this thread, which waits for its result.
  static Caller blocking(std::stop_token token) {
    Caller caller(std::move(token));
    caller.blocking_thread = std::this_thread::get_id();
    return caller;
  }

  std::stop_token stop;
  std::thread::id blocking_thread{};
};

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
