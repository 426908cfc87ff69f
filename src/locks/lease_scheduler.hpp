// One thread that watches the deadlines of all leases of a client.
#pragma once

#include "core/deadline_heap.hpp"

#include <syncguard/boot_clock.hpp>

#include <asio/any_io_executor.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace syncguard {
inline namespace v0_1 {
namespace detail {

class LeaseState;

// Calls LeaseState::tick() when it is due, on a thread of its own ("syncguard-lease"): a lease is lost on time even if
// the client's executor is blocked, or if there is no memory. Contains every lease that is not over. Thread-safe.
class LeaseScheduler {
 public:
  using Time = BootClock::time_point;
  using Leases = core::DeadlineHeap<LeaseState, Time>;

  // Starts the thread. While there are leases, the context of the given executor has work, because renewals run there.
  // When that context is destroyed, the thread ends before it.
  explicit LeaseScheduler(std::optional<asio::any_io_executor> kept_busy);
  LeaseScheduler(const LeaseScheduler&) = delete;
  LeaseScheduler& operator=(const LeaseScheduler&) = delete;
  // Ends the thread, and waits for its end unless called on that thread.
  ~LeaseScheduler();

  // Adds the lease, or moves it to another time. Returns false after close(). Only adding can throw std::bad_alloc.
  bool schedule(const std::shared_ptr<LeaseState>& lease, Time due);
  void remove(LeaseState& lease) noexcept;

  // A function for the backend, which may call it at any time: the store has lost every lock. It calls
  // LeaseState::lock_is_gone() for each lease, soon, on the scheduler's thread.
  [[nodiscard]] std::function<void()> locks_are_gone() const;

  // Ends the thread. Returns all leases that were not over. Afterwards the thread uses no lease, unless this is called
  // on that thread.
  std::vector<Leases::Entry> close() noexcept;

 private:
  struct State;
  class ContextService;
  const std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
