/// \file
/// The limits of one operation of a backend. Without Asio.
#pragma once

#include <chrono>
#include <stop_token>
#include <thread>

namespace syncguard {
inline namespace v0_1 {

/// The limits of one operation.
struct CallLimits {
  std::stop_token stop;
  std::chrono::steady_clock::time_point deadline;
  /// The thread that only waits for this operation; none if the caller is asynchronous.
  std::thread::id blocking_thread{};

  /// Whether the operation may block the calling thread. Then it can do its work here, within these limits, instead of
  /// handing it to another thread, and should send its request at once instead of together with others. Ask again after
  /// every co_await, which may continue on another thread. Any other thread runs other operations, too: never block it.
  [[nodiscard]] bool may_block() const noexcept { return blocking_thread == std::this_thread::get_id(); }
};

}  // namespace v0_1
}  // namespace syncguard
