// Drives the LeaseMachine of a Lease: does its requests, timers, callbacks and metrics. All rules are in the machine.
#pragma once

#include "async/event.hpp"
#include "locks/client.hpp"
#include "locks/lease_machine.hpp"

#include <syncguard/backend.hpp>
#include <syncguard/client_options.hpp>
#include <syncguard/lock_info.hpp>

#include <asio/awaitable.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <vector>

namespace syncguard {
inline namespace v0_1 {
namespace detail {

// Thread-safe: calls of the application, renewals and the closing of the client may run concurrently. One request is in
// flight at a time; others wait for its slot.
class LeaseState : public std::enable_shared_from_this<LeaseState> {
 public:
  struct Grant {
    Granted reply;
    LeaseMachine::Time sent_at;
    std::chrono::milliseconds ttl;
    LeaseMachine::Renewal renewal;
    std::chrono::milliseconds max_hold;
  };

  LeaseState(std::shared_ptr<Client> client, std::shared_ptr<const Callbacks> callbacks, Key key, const LockId& id,
             const Grant& grant);
  LeaseState(const LeaseState&) = delete;
  LeaseState& operator=(const LeaseState&) = delete;
  ~LeaseState();

  // Starts to watch the deadline, and keeps the client open. Returns false if the client is closing.
  [[nodiscard]] bool start();

  [[nodiscard]] const std::shared_ptr<Client>& client() const noexcept { return client_; }
  [[nodiscard]] const Key& key() const noexcept { return key_; }
  [[nodiscard]] const LockId& id() const noexcept { return id_; }
  [[nodiscard]] Fence fence() const noexcept { return fence_; }
  [[nodiscard]] Timestamp expires_at() const noexcept;
  [[nodiscard]] std::chrono::milliseconds remaining() const noexcept;
  // On the boot clock.
  [[nodiscard]] BootClock::time_point deadline() const noexcept;
  [[nodiscard]] bool is_over() const noexcept;
  [[nodiscard]] std::stop_token lost() const noexcept;
  // See LeaseMachine.
  [[nodiscard]] bool lock_was_lost() const noexcept;
  [[nodiscard]] std::optional<LossReason> loss_reason() const noexcept;

  // Called by the scheduler. Neither needs memory to tell a loss.
  void tick() noexcept;
  // The store has lost the lock.
  void lock_is_gone() noexcept;

  asio::awaitable<bool> extend(std::chrono::milliseconds ttl, Caller caller);
  asio::awaitable<bool> release(Caller caller);
  asio::awaitable<bool> release_with_retries(Caller caller);
  // Releases as the destructor of a Lease does: retries after transient errors for as long as a destructor may wait
  // (Client::disposal_deadline), then continues in the background. Returns the error to report, if any.
  static asio::awaitable<std::optional<LockError>> dispose(std::shared_ptr<LeaseState> self,
                                                           std::thread::id blocking_thread = {});
  // The same without waiting: retries until the lease's deadline, and reports the error itself.
  static void start_disposal(const std::shared_ptr<LeaseState>& self) noexcept;
  // The same a little later, because there is no memory for it now.
  void dispose_later() noexcept;
  void detach();
  // The lease no longer keeps its client open. Later calls do nothing. The caller must not hold a mutex.
  void drop_client(Client::Closing closing) noexcept;
  // The same if the lease is over. Returns whether it is.
  bool drop_client_if_over(Client::Closing closing) noexcept;
  // The client is being closed: the lease is over, and lost if it was held. Returns whether its lock must still be
  // released.
  enum class AtClose { nothing, release };
  AtClose client_closes() noexcept;
  // Whether lost() is about to fire, and has not yet.
  [[nodiscard]] bool loss_is_untold() const noexcept;
  // Makes one attempt to release, after lost() has fired. Reports an error. Throws only std::bad_alloc.
  asio::awaitable<void> release_for_close(const CallLimits& limits);

  // The error of a section that outlived its lock.
  [[nodiscard]] LockError lock_lost() const;
  // Calls on_release_error, or logs a warning if it is not set.
  void report(const LockError& error) const noexcept;

  // Owned by LeaseScheduler.
  std::size_t heap_place = static_cast<std::size_t>(-1);

 private:
  // The right to have the lease's only request in flight. Keeps the lease alive.
  class RequestSlot;
  // Tells the loss. Allocated with the lease, because the loss must be told even if there is no memory.
  class Loss;
  // Waits for the slot. Returns the state of the lease when the slot is taken.
  asio::awaitable<LeaseMachine::State> take_slot(const CallLimits& limits);
  // The same without waiting, and cheaper, because this is not a coroutine: nullopt if another request has the slot.
  std::optional<LeaseMachine::State> try_take_slot();
  void free_slot() noexcept;

  // The machine has taken the slot for it.
  void start_renewal(std::unique_lock<std::mutex> lock) noexcept;
  static asio::awaitable<void> renew(RequestSlot slot, std::stop_token stop);
  // At most one per minute and kind.
  void warn(const char* kind, const char* what, const LockError& error) const noexcept;
  struct ExtendResult {
    bool held;
    std::optional<EventReason> refusal;
  };
  static asio::awaitable<void> dispose_in_background(std::shared_ptr<LeaseState> self);
  // These two require the slot.
  asio::awaitable<ExtendResult> send_extend(std::chrono::milliseconds ttl, const CallLimits& limits);
  asio::awaitable<bool> send_release(const CallLimits& limits);
  // Afterwards the lease is over, unless the last error was transient and the lease's deadline has not passed.
  asio::awaitable<std::optional<LockError>> release_until(std::chrono::steady_clock::time_point until,
                                                          std::thread::id blocking_thread = {});
  // nullopt if the lock has expired in the store by now.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> pause_before_release(int failures) const;
  static asio::awaitable<void> retry_release(std::shared_ptr<LeaseState> self);

  // Ends renewal. Returns false if the lease is over.
  bool begin_release(LeaseMachine::ReleasedBy by);
  asio::awaitable<void> lost_fired(const CallLimits& limits);
  // Drops the client on its executor: the scheduler's thread must not close it.
  void drop_client_soon() noexcept;
  void end();
  void observe(EventType type, const Outcome& outcome, std::chrono::nanoseconds duration) const noexcept;
  // These two require mutex_.
  void reschedule() noexcept;
  // Fires lost() and reports to the metrics. The caller starts requests.
  void apply(const LeaseMachine::Actions& actions) noexcept;

  const std::shared_ptr<Client> client_;
  const std::shared_ptr<const Callbacks> callbacks_;
  const Key key_;
  const LockId id_;
  const Fence fence_;
  const std::shared_ptr<Loss> loss_;
  const BootClock::time_point sent_at_;

  mutable std::mutex mutex_;
  Timestamp expires_at_;
  LeaseMachine machine_;
  // Whether the lease has one of the client's references. Not a rule of the machine: a destroyed Lease gives it back
  // even while its release continues in the background.
  bool keeps_client_open_ = false;
  std::optional<async::Event> slot_is_free_;  // exists while a request waits for the slot
  // Stops the pending renewal.
  std::stop_source renewal_stop_{std::nostopstate};
};

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
