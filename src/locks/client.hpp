// What all copies of a Locks, and its leases, share.
#pragma once

#include "async/callback_threads.hpp"
#include "async/io_thread.hpp"
#include "async/spawn.hpp"
#include "async/stop.hpp"
#include "async/wake_up.hpp"
#include "locks/lease_scheduler.hpp"
#include "locks/waiting_line.hpp"

#include <syncguard/async.hpp>
#include <syncguard/backend.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace syncguard::detail {

// Life: open -> closing (no new operations, the running ones are told to stop) -> closed (leases released, backend
// closed). Operations and leases hold a shared_ptr to it; only ClientHandle, which the Locks share, closes it.
class Client : public std::enable_shared_from_this<Client> {
 public:
  // With no executor: an I/O thread of its own.
  Client(std::unique_ptr<Backend> backend, ClientOptions options, std::optional<asio::any_io_executor> executor);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client();

  // Counts as running while it exists; closing waits for it. Throws LockError(aborted) once the client is closing (what
  // tidies up: once it is closed), and LockError(invalid_argument) in a forked child.
  class Operation {
   public:
    enum class Purpose { work, tidying_up };
    explicit Operation(Client& client, Purpose purpose = Purpose::work);
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;
    ~Operation();

   private:
    std::shared_ptr<Client> client_;
    Purpose purpose_;
  };

  // One operation of the application's: counted, with the tokens that can stop it as one, and its limits.
  class Call {
   public:
    Call(Client& client, const std::stop_token& stop, const std::stop_token& other_stop = {})
        : client_(client), operation_(client), stop_{stop, other_stop, client.stop_token()} {}

    [[nodiscard]] const std::stop_token& stop_token() const noexcept { return stop_.token(); }
    // Of one request that is sent now.
    [[nodiscard]] CallLimits limits() const { return client_.limits(stop_.token()); }

   private:
    Client& client_;
    const Operation operation_;
    const async::AnyStop stop_;
  };

  [[nodiscard]] const asio::any_io_executor& executor() const noexcept { return executor_; }
  [[nodiscard]] const asio::any_io_executor& coroutine_executor() const noexcept { return coroutine_executor_; }
  [[nodiscard]] Backend& backend() noexcept { return *backend_; }
  [[nodiscard]] LeaseScheduler& scheduler() noexcept { return *scheduler_; }
  [[nodiscard]] WaitingLine& waiting_line() noexcept { return waiting_line_; }
  [[nodiscard]] const Log& log() const noexcept { return options_.log; }

  // Stopped when the client begins to close.
  [[nodiscard]] std::stop_token stop_token() const noexcept { return stop_.get_token(); }
  // For one operation that begins now.
  [[nodiscard]] CallLimits limits(std::stop_token stop) const;
  // For what must be tidied up although its caller, or the client, is going away.
  [[nodiscard]] CallLimits disposal_limits() const;

  [[nodiscard]] double random(const Callbacks& callbacks) const;
  // Runs a callback of the application's where it can hold up nothing.
  void notify(std::function<void()> callback) { notifier_.post(std::move(callback)); }

  // Lets a backend's exceptions through as LockErrors that know what they are about.
  template <typename Result>
  asio::awaitable<Result> checked(asio::awaitable<Result> operation, std::string_view key, std::string_view lock_id) {
    try {
      co_return co_await std::move(operation);
    } catch (const LockError& error) {
      throw error.about(key, lock_id);
    } catch (const std::exception&) {
      ErrorContext context{std::string(key), std::string(lock_id), std::current_exception()};
      // Not what it says: that may contain anything.
      throw LockError(ErrorCode::internal, "the backend failed unexpectedly; the cause is in the error's context",
                      Effect::in_doubt, std::move(context));
    }
  }

  // Makes sure that an acquire in doubt leaves no lock behind: in the background, until it worked or the ttl did it.
  void retract_in_background(const AcquireRequest& request);
  // Gives up a place in a key's queue, in the background.
  void leave_in_background(std::unique_ptr<WaitTicket> ticket);

  // Whether a blocking call on this thread could wait for itself.
  [[nodiscard]] bool must_not_block() const noexcept;
  [[nodiscard]] bool is_forked() const noexcept;

  // Drives a coroutine to its end from ordinary code. twin names the asynchronous function for who must not block.
  template <typename Start>
  auto block_on(std::string_view twin, const Start& start) {
    refuse_blocking(twin);
    return async::run_blocking(executor_, start());
  }

  asio::awaitable<bool> close();

 private:
  void refuse_blocking(std::string_view twin) const;
  std::size_t& running(Operation::Purpose purpose) noexcept {
    return purpose == Operation::Purpose::work ? running_work_ : running_tidying_up_;
  }
  asio::awaitable<void> operations_ended(Operation::Purpose purpose, std::chrono::steady_clock::time_point until);
  asio::awaitable<void> release_leases(const std::vector<std::shared_ptr<LeaseState>>& leases,
                                       const CallLimits& limits);

  // The order matters: what uses the thread's context is destroyed before it.
  std::optional<async::IoThread> io_thread_;
  const asio::any_io_executor executor_;
  const asio::any_io_executor coroutine_executor_;
  const ClientOptions options_;
  const unsigned fork_generation_;
  const std::unique_ptr<Backend> backend_;
  const std::chrono::milliseconds operation_timeout_;
  const std::shared_ptr<LeaseScheduler> scheduler_;
  WaitingLine waiting_line_;
  async::CallbackThreads notifier_;

  const std::stop_source stop_;
  const std::stop_source disposal_stop_;
  std::mutex mutex_;
  enum class Life { open, closing, closed } life_ = Life::open;
  std::size_t running_work_ = 0;
  std::size_t running_tidying_up_ = 0;
  std::shared_ptr<async::WakeUp> last_operation_ended_;
  std::vector<std::shared_ptr<async::WakeUp>> waiting_for_close_;
};

// Closes the client when the last Locks goes.
class ClientHandle {
 public:
  explicit ClientHandle(std::shared_ptr<Client> client) : client_(std::move(client)) {}
  ClientHandle(const ClientHandle&) = delete;
  ClientHandle& operator=(const ClientHandle&) = delete;
  ~ClientHandle();

  void close() noexcept;
  [[nodiscard]] const std::shared_ptr<Client>& client() const noexcept { return client_; }

 private:
  std::shared_ptr<Client> client_;
};

}  // namespace syncguard::detail
