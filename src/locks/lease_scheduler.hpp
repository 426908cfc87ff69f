// One timer for all leases of a client.
#pragma once

#include "async/boot_timer.hpp"
#include "locks/deadline_heap.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>

#include <memory>
#include <mutex>
#include <vector>

namespace syncguard::detail {

class LeaseState;

// Calls LeaseState::tick() on the client's executor when it is due. Knows every lease that is not over. Thread-safe.
class LeaseScheduler : public std::enable_shared_from_this<LeaseScheduler> {
 public:
  using Time = async::BootClock::time_point;
  enum class Idle { keep_waiting, let_executor_go };

  // let_executor_go: soon after the last lease is gone, nothing of ours keeps the executor's context from running out
  // of work.
  LeaseScheduler(const asio::any_io_executor& executor, Idle idle);

  // Adds the lease, or moves it to another time.
  void schedule(const std::shared_ptr<LeaseState>& lease, Time due);
  void remove(LeaseState& lease);

  // Ends the scheduling; returns all leases that were not over.
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

}  // namespace syncguard::detail
