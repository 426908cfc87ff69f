// The state that all copies of a Locks and its leases share.
#pragma once

#include "async/callback_threads.hpp"
#include "async/event.hpp"
#include "async/io_thread.hpp"
#include "async/spawn.hpp"
#include "async/stop.hpp"
#include "locks/in_doubt_acquires.hpp"
#include "locks/lease_scheduler.hpp"
#include "locks/metrics.hpp"
#include "locks/wait_queue.hpp"
#include "os/fork.hpp"

#include <syncguard/async.hpp>
#include <syncguard/backend.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>

#include <cxxabi.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stop_token>
#include <string>
#include <type_traits>
#include <vector>

namespace syncguard {
inline namespace v0_1 {
namespace detail {

// Lifecycle: open -> closing (new operations are rejected, running ones are asked to stop) -> closed (leases released,
// backend closed). Operations and leases have a shared_ptr, which keeps the object alive but not open. References keep
// it open: one for all copies of a Locks, and one for each live lease.
class Client : public std::enable_shared_from_this<Client> {
 public:
  // Without an executor, the client starts its own I/O thread. In a forked child the client is never destroyed.
  static std::shared_ptr<Client> make(std::unique_ptr<Backend> backend, ClientOptions options,
                                      std::optional<asio::any_io_executor> executor);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client();

  // Counts as running while it exists; closing waits for it. The constructor throws LockError(aborted) if the client is
  // closing (with Purpose::cleanup: if it is closed), and LockError(invalid_argument) in a forked child.
  class Operation {
   public:
    enum class Purpose { work, cleanup };
    // The caller keeps the client alive.
    explicit Operation(Client& client, Purpose purpose = Purpose::work);
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;
    ~Operation();

   private:
    Client& client_;
    const Purpose purpose_;
  };

  // One operation of the application: counts as running, and merges the tokens that can stop it.
  class Call {
   public:
    Call(Client& client, const Caller& caller)
        : client_(client),
          operation_(client),
          stop_(caller.stop, client.stop_token()),
          blocking_thread_(caller.blocking_thread) {}

    [[nodiscard]] const std::stop_token& stop_token() const noexcept { return stop_.token(); }
    // The limits of one request that is sent now.
    [[nodiscard]] CallLimits limits(
        std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now()) const {
      return {stop_.token(), now + client_.operation_timeout_, blocking_thread_};
    }

   private:
    Client& client_;
    const Operation operation_;
    const async::EitherStop stop_;
    const std::thread::id blocking_thread_;
  };

  [[nodiscard]] const asio::any_io_executor& executor() const noexcept { return executor_; }
  [[nodiscard]] const asio::any_io_executor& coroutine_executor() const noexcept { return coroutine_executor_; }
  [[nodiscard]] Backend& backend() noexcept { return *backend_; }
  [[nodiscard]] LeaseScheduler& scheduler() noexcept { return scheduler_; }
  [[nodiscard]] WaitQueue& wait_queue() noexcept { return wait_queue_; }
  [[nodiscard]] InDoubtAcquires& in_doubt_acquires() noexcept { return in_doubt_acquires_; }
  // The label that locks of this client carry; may be empty.
  [[nodiscard]] const std::string& holder() const noexcept { return holder_; }
  [[nodiscard]] const Log& log() const noexcept { return options_.log; }
  // Null if nothing is counted.
  [[nodiscard]] BackendCounters* counters() const noexcept { return counters_.get(); }
  // Whether observe() has any effect.
  [[nodiscard]] bool is_observed() const noexcept { return counters_ != nullptr || lease_observer_ != nullptr; }
  // Reports an event to metrics and telemetry. Never blocks; the caller may hold the mutex of a lease.
  void observe(const LeaseEvent& event) const noexcept {
    if (counters_) counters_->observe(event);
    if (lease_observer_ != nullptr) lease_observer_->observe(event);
  }

  [[nodiscard]] std::chrono::milliseconds operation_timeout() const noexcept { return operation_timeout_; }
  // Stopped when closing starts.
  [[nodiscard]] std::stop_token stop_token() const noexcept { return stop_.get_token(); }
  // The limits of one cleanup request, which neither the caller's stop token nor stop_token() ends.
  // blocking_thread: that of a destructor that waits for it.
  [[nodiscard]] CallLimits disposal_limits(std::thread::id blocking_thread = {}) const;
  // Until when the destructor of a lease may wait for the release; nullopt if it must not wait. After one destructor
  // has timed out, no other one waits until the store replies again.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> disposal_deadline() const;
  void disposal_timed_out() noexcept { releases_in_background_ = true; }
  [[nodiscard]] bool releases_in_background() const noexcept { return releases_in_background_; }

  [[nodiscard]] double random(const Callbacks& callbacks) const;
  // Runs the callback that tells a loss. The application's callbacks on it delay neither the caller nor the loss of
  // another lease. Needs no memory.
  void notify_lost(std::shared_ptr<async::CallbackThreads::Callback> loss) noexcept;
  // Runs any other callback of the application, one at a time, on a thread where it delays only later ones. If too many
  // are queued, or if there is no thread, the callback is dropped with a warning.
  void notify(std::function<void()> callback) noexcept;

  // Turns every exception of a backend into a LockError with the given identifiers. Does not start the operation in a
  // forked child, where a copy of the parent's coroutine may continue. Metrics count it if a type is given.
  template <typename Result>
  asio::awaitable<Result> checked(asio::awaitable<Result> operation, std::string_view key, std::string_view lock_id,
                                  std::optional<EventType> type = std::nullopt) {
    refuse_in_child();
    const OperationTimer timer(counters_.get(), type);
    try {
      if constexpr (std::is_void_v<Result>) {
        co_await std::move(operation);
        store_answered();
      } else {
        auto result = co_await std::move(operation);
        store_answered();
        if constexpr (requires { outcome_of(result); }) timer.ended(outcome_of(result));
        co_return result;
      }
    } catch (const LockError& error) {
      timer.ended(Outcome::failed(error.code()));
      throw error.about(key, lock_id);
    } catch (const std::bad_alloc&) {
      // Not a LockError, which needs memory.
      timer.ended(Outcome::failed(ErrorCode::internal));
      throw;
    } catch (const abi::__forced_unwind&) {
      throw;  // not an error: the thread is being canceled
    } catch (...) {
      timer.ended(Outcome::failed(ErrorCode::internal));
      ErrorContext context{std::string(key), std::string(lock_id), std::current_exception()};
      // Not the exception's message, which may contain anything.
      throw LockError(ErrorCode::internal, "the backend failed unexpectedly; the cause is in the error's context",
                      Effect::in_doubt, std::move(context));
    }
  }

  // Makes sure that an acquire in doubt leaves no lock behind: retries in the background until it succeeds, until the
  // lock has expired, or until the entry is dropped because there are too many.
  void retract_in_background(const AcquireRequest& request) noexcept;
  // Gives up a place in a key's queue, in the background.
  void leave_in_background(std::unique_ptr<WaitTicket> ticket) noexcept;

  // Whether a blocking call on this thread could deadlock.
  [[nodiscard]] bool must_not_block() const noexcept;
  // Whether this process is a forked child of the one that opened the client. Its threads, timers and connections then
  // belong to the parent, and its mutexes may be locked forever: check before touching anything.
  [[nodiscard]] bool is_forked() const noexcept { return origin_.is_ancestor(); }
  // Throws LockError(invalid_argument) if is_forked().
  void refuse_in_child() const { origin_.refuse_in_child(); }
  // Where completions run by default: the client's executor. A forked child has no I/O thread, so another executor is
  // used there.
  [[nodiscard]] asio::any_io_executor completion_executor() const;

  // Runs the coroutine that start(caller) returns to its end, from blocking code. async_name names the asynchronous
  // function to use on threads that must not block.
  template <typename Start>
  auto block_on(std::string_view async_name, std::stop_token stop, const Start& start) {
    refuse_blocking(async_name);
    return async::run_blocking(executor_, start(Caller::blocking(std::move(stop))));
  }

  // The client stays open until every reference is gone; dropping the last one closes it.
  enum class Closing { wait, in_background };
  void add_reference();
  void remove_reference(Closing closing) noexcept;
  // Keeps the client open until the last copy is destroyed.
  [[nodiscard]] std::shared_ptr<void> kept_open();

  // Keeps the client alive.
  asio::awaitable<bool> close();
  // For callers that are not coroutines. Waits only on threads that may block.
  void close(Closing closing) noexcept;

 private:
  Client(std::unique_ptr<Backend> backend, ClientOptions options, std::optional<asio::any_io_executor> executor);

  void store_answered() noexcept {
    if (releases_in_background_.load(std::memory_order_relaxed)) releases_in_background_ = false;
  }
  void refuse_blocking(std::string_view async_name) const;
  std::size_t& running(Operation::Purpose purpose) noexcept {
    return purpose == Operation::Purpose::work ? running_work_ : running_cleanup_;
  }
  asio::awaitable<void> operations_ended(Operation::Purpose purpose, std::chrono::steady_clock::time_point until);
  asio::awaitable<bool> close(std::shared_ptr<Client> kept_alive);
  // The leases of a client that is being closed, and its progress: a step that runs out of memory is repeated.
  struct Closure;
  // Returns when everything has ended. Throws only std::bad_alloc.
  asio::awaitable<void> run_closing_steps(Closure& closure);
  asio::awaitable<void> release_leases(Closure& closure);
  // Every lease is over, and lost if it was held. Afterwards the closure has those to release.
  void lose_leases(Closure& closure) noexcept;
  // What needs no memory: tells every loss, and blocks until that is done. The locks expire after their ttl.
  void lose_leases_without_memory(Closure& closure) noexcept;

  // Declared first, because it must be destroyed after all members that use its context.
  std::optional<async::IoThread> io_thread_;
  const asio::any_io_executor executor_;
  const asio::any_io_executor coroutine_executor_;
  const ClientOptions options_;
  const std::string holder_;
  const os::OriginProcess origin_;
  const std::unique_ptr<Backend> backend_;
  LeaseObserver* const lease_observer_;  // the backend, if it wants the events of leases
  const std::shared_ptr<BackendCounters> counters_;
  const std::chrono::milliseconds operation_timeout_;
  LeaseScheduler scheduler_;
  WaitQueue wait_queue_;
  InDoubtAcquires in_doubt_acquires_;
  async::CallbackThreads lost_threads_;
  async::CallbackThreads callback_thread_;

  const std::stop_source stop_;
  const std::stop_source disposal_stop_;
  std::atomic<bool> releases_in_background_{false};
  std::mutex mutex_;
  enum class Lifecycle { open, closing, closed } lifecycle_ = Lifecycle::open;
  std::size_t references_ = 0;
  std::size_t running_work_ = 0;
  std::size_t running_cleanup_ = 0;
  std::optional<async::Event> last_operation_ended_;  // closing waits for it
  const async::Event closed_;
};

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
