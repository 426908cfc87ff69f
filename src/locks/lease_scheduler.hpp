// One timer for all leases of a client.
#pragma once

#include "async/boot_timer.hpp"
#include "locks/deadline_heap.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>

#include <memory>
#include <mutex>
#include <vector>

namespace syncguard {
inline namespace v0_1 {
namespace detail {

class LeaseState;

// Calls LeaseState::tick() on the client's executor when it is due. Contains every lease that is not over. Thread-safe.
class LeaseScheduler : public std::enable_shared_from_this<LeaseScheduler> {
 public:
  using Time = BootClock::time_point;
  enum class Idle { keep_waiting, stop_executor };

  // With stop_executor, the timer stops soon after the last lease is gone, so that the executor's context can run out
  // of work.
  LeaseScheduler(const asio::any_io_executor& executor, Idle idle);

  // Adds the lease, or moves it to another time. Returns false after close().
  bool schedule(const std::shared_ptr<LeaseState>& lease, Time due);
  void remove(LeaseState& lease);

  // Marks every lease as lost, because the store has lost its locks. Returns the leases: each may hold the last
  // reference to its client, which a thread of the backend must not destroy.
  [[nodiscard]] std::vector<std::shared_ptr<LeaseState>> locks_are_gone();

  // Stops the timer, and returns all leases that were not over.
  std::vector<std::shared_ptr<LeaseState>> close();

 private:
  void arm_by(Time due);
  static asio::awaitable<void> run(std::shared_ptr<LeaseScheduler> self);

  asio::any_io_executor executor_;
  const Idle idle_;
  async::BootTimer timer_;
  std::mutex mutex_;
  DeadlineHeap<LeaseState, Time> leases_;
  Time armed_ = Time::max();
  bool running_ = false;
  bool closed_ = false;
};

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
