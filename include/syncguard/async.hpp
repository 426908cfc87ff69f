/// \file
/// The asynchronous API: every operation with any Asio completion token (a coroutine's use_awaitable, a future, a
/// callback). Blocking calls run the same coroutines. Completions are (std::exception_ptr, result).
#pragma once

#include <syncguard/detail/caller.hpp>
#include <syncguard/detail/immediate_executor.hpp>
#include <syncguard/syncguard.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/associated_allocator.hpp>
#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/awaitable.hpp>
#include <asio/bind_executor.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/cancellation_state.hpp>
#include <asio/cancellation_type.hpp>
#include <asio/co_spawn.hpp>
#include <asio/dispatch.hpp>
#include <asio/post.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace syncguard {
inline namespace v0_1 {

/// Opens a client without an I/O thread of its own: it runs and completes on the caller's executor, whose context must
/// outlive the client and its leases. Operations start on the calling thread. Callbacks on lost(), on_release_error and
/// on_extended run on the library's threads; random runs on the thread that runs the operation. Blocking calls on such
/// a client throw LockError(invalid_argument), and its leases release in the background.
[[nodiscard]] SYNCGUARD_EXPORT Locks open_on(asio::any_io_executor executor, std::string_view url,
                                             ClientOptions options = {});
[[nodiscard]] SYNCGUARD_EXPORT Locks open_on(asio::any_io_executor executor, std::unique_ptr<Backend> backend,
                                             ClientOptions options = {});

namespace detail {

// The library's access to private members of Lease.
struct LeaseAccess {
  static std::shared_ptr<LeaseState> take(Lease& lease) { return std::exchange(lease.state_, nullptr); }
  static Lease make(std::shared_ptr<LeaseState> state) { return Lease(std::move(state)); }
  // Called before the application gets a lease. Until then a lease does not know its client, because that would make
  // each of its moves more expensive.
  SYNCGUARD_EXPORT static void deliver(Lease& lease) noexcept;
  static void deliver(TryResult& result) noexcept {
    if (result) deliver(*result);
  }
  template <typename OtherResult>
  static void deliver(OtherResult&) noexcept {}
};

using ClientPtr = std::shared_ptr<Client>;
using CallbacksPtr = std::shared_ptr<const Callbacks>;

// Where completions run unless their token has another executor. Without a client: on Asio's system executor.
SYNCGUARD_EXPORT asio::any_io_executor executor_of(const ClientPtr& client);
// An error if the client was opened in a parent process before a fork; otherwise null.
SYNCGUARD_EXPORT std::exception_ptr refusal_in_child(const Client& client);
// The executor of the operations below.
SYNCGUARD_EXPORT const asio::any_io_executor& coroutine_executor_of(const Client& client);

// The operations. Blocking calls run the same coroutines.
SYNCGUARD_EXPORT asio::awaitable<TryResult> try_acquire(ClientPtr client, CallbacksPtr callbacks, Key key,
                                                        TryOptions options, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<Lease> acquire(ClientPtr client, CallbacksPtr callbacks, Key key,
                                                AcquireOptions options, Caller caller, std::stop_token wait_stop);
SYNCGUARD_EXPORT asio::awaitable<bool> release(ClientPtr client, LockId id, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<std::optional<Timestamp>> extend(ClientPtr client, LockId id,
                                                                  std::chrono::milliseconds ttl, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<bool> is_locked(ClientPtr client, Key key, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<std::optional<LockRecord>> lookup_raw(ClientPtr client, Key key, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<std::optional<LockRecord>> lookup_raw(ClientPtr client, LockId id, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<std::optional<LockInfo>> lookup(ClientPtr client, Key key, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<std::optional<LockInfo>> lookup(ClientPtr client, LockId id, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<bool> owns(ClientPtr client, LockId id, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<std::vector<Finding>> diagnose(ClientPtr client, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<std::string> setup(ClientPtr client, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<LockPage> list(ClientPtr client, std::string prefix, std::size_t limit,
                                                std::string cursor, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<KeyState> inspect(ClientPtr client, Key key, Caller caller);
// The state of the key as soon as it differs from the last one; at once if there is none.
SYNCGUARD_EXPORT asio::awaitable<KeyState> next_change(ClientPtr client, Key key, std::optional<KeyState> last,
                                                       WatchOptions options, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<bool> break_lock(ClientPtr client, Key key, Fence fence, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<Fence> fence(ClientPtr client, Key key, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<Fence> raise_fence(ClientPtr client, Key key, Fence fence, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<CleanupReply> clean_up(ClientPtr client, CleanupRequest request, Caller caller);
// Returns false for an empty lease.
SYNCGUARD_EXPORT asio::awaitable<bool> extend_lease(std::shared_ptr<LeaseState> lease, std::chrono::milliseconds ttl,
                                                    Caller caller);
SYNCGUARD_EXPORT asio::awaitable<bool> release_lease(std::shared_ptr<LeaseState> lease, Caller caller);
// Releases like the destructor of a lease. Throws LockError(lock_lost) if the lock was gone and if_lost is
// IfLost::fail.
SYNCGUARD_EXPORT asio::awaitable<bool> end_section(std::shared_ptr<LeaseState> lease, IfLost if_lost);
SYNCGUARD_EXPORT asio::awaitable<bool> close(ClientPtr client);
// Throws LockError(aborted) if a stop was requested.
SYNCGUARD_EXPORT void expect_no_stop(const std::stop_token& stop);

// Options are read when the call starts; the objects they point to need not live longer.
inline std::stop_token take_wait_stop(AcquireOptions& options) {
  const std::stop_token* stop = std::exchange(options.wait.stop, nullptr);
  return stop != nullptr ? *stop : std::stop_token();
}

// Whether an executor, such as that of asio::use_future, belongs to no execution context.
template <typename Executor>
inline constexpr bool completes_anywhere = !std::is_convertible_v<Executor, asio::any_io_executor>;

// Runs function on the handler's executor, never inside the initiating function unless the handler belongs to a future.
template <typename Executor, typename Function>
void complete_on(const Executor& executor, Function&& function) {
  // A future's handler only stores the result; posting it would start the system's threads.
  if constexpr (completes_anywhere<Executor>) {
    asio::dispatch(executor, std::forward<Function>(function));
  } else {
    asio::post(executor, std::forward<Function>(function));
  }
}

// Starts operation(client, stop_token) and completes token with its result. Without a client, completes with an empty
// result; in a forked child, with an error.
template <typename Operation, typename CompletionToken>
auto initiate(ClientPtr client, Operation operation, CompletionToken&& token) {
  using Result = typename std::invoke_result_t<Operation&, const ClientPtr&, std::stop_token>::value_type;
  return asio::async_initiate<CompletionToken, void(std::exception_ptr, Result)>(
      [](auto handler, const ClientPtr& of, auto start) {
        const auto executor = asio::get_associated_executor(handler, executor_of(of));
        auto refused = of ? refusal_in_child(*of) : nullptr;
        if (!of || refused) {
          complete_on(executor, [handler = std::move(handler), refused = std::move(refused)]() mutable {
            std::move(handler)(std::move(refused), Result{});
          });
          return;
        }
        std::stop_source stop(std::nostopstate);
        auto slot = asio::get_associated_cancellation_slot(handler);
        if (slot.is_connected()) {
          stop = std::stop_source();
          slot.assign([stop](asio::cancellation_type) mutable { stop.request_stop(); });
        }
        // The code that completes the coroutine (for example the reader of a connection) must not wait for application
        // code, so the handler is always posted. Until then, outstanding work keeps the application's context running.
        auto work = asio::prefer(executor, asio::execution::outstanding_work.tracked);
        auto post_handler = [handler = std::move(handler), work = std::move(work), slot, kept_open = ClientPtr(of)](
                                std::exception_ptr error, Result result) mutable {
          auto complete = [handler = std::move(handler), slot, kept_open = std::move(kept_open),
                           error = std::move(error), result = std::move(result)]() mutable {
            if (slot.is_connected()) slot.clear();
            // Dropped before the handler runs, so that the thread that destroys the last Locks ends the client, not
            // this one.
            kept_open = nullptr;
            LeaseAccess::deliver(result);
            std::move(handler)(std::move(error), std::move(result));
          };
          complete_on(work, std::move(complete));
        };
        const auto& coroutine_executor = coroutine_executor_of(*of);
        const ImmediateExecutor immediate(asio::query(coroutine_executor, asio::execution::context));
        asio::co_spawn(coroutine_executor, start(of, stop.get_token()),
                       asio::bind_executor(immediate, std::move(post_handler)));
      },
      token, std::move(client), std::move(operation));
}

// Where the caller's code runs: on the executor of its token, or the client's if that belongs to no execution context.
template <typename Handler>
asio::any_io_executor section_executor(const Handler& handler, const ClientPtr& client) {
  auto associated = asio::get_associated_executor(handler, executor_of(client));
  if constexpr (completes_anywhere<decltype(associated)>) {
    return executor_of(client);
  } else {
    return associated;
  }
}

// Cancels a coroutine that runs the caller's code between operations of the library. Not through Asio's cancellation
// state of that coroutine: it ignores some types, and its error is not a LockError.
struct Cancellation {
  // Connects it to the slot of the caller's handler.
  template <typename Handler>
  static std::shared_ptr<Cancellation> of(const Handler& handler) {
    auto cancellation = std::make_shared<Cancellation>();
    auto slot = asio::get_associated_cancellation_slot(handler);
    if (slot.is_connected()) slot.assign([cancellation](asio::cancellation_type type) { cancellation->cancel(type); });
    return cancellation;
  }

  void cancel(asio::cancellation_type type) {
    stop.request_stop();
    if (section_runs) section.emit(type);
  }

  std::stop_source stop;              // ends operations of the library
  asio::cancellation_signal section;  // cancels the caller's coroutine
  bool section_runs = false;
};

// The handler of that coroutine: the caller's, but with the slot of a Cancellation. Not asio::bind_cancellation_slot,
// which Asio 1.22 does not support for handlers that are already bound to a slot.
template <typename Handler>
class SectionHandler {
 public:
  using executor_type = asio::associated_executor_t<Handler, asio::any_io_executor>;
  using allocator_type = asio::associated_allocator_t<Handler>;
  using cancellation_slot_type = asio::cancellation_slot;

  SectionHandler(Handler handler, const asio::any_io_executor& executor, std::shared_ptr<Cancellation> cancellation)
      : executor_(asio::get_associated_executor(handler, executor)),
        cancellation_(std::move(cancellation)),
        handler_(std::move(handler)) {}

  [[nodiscard]] executor_type get_executor() const noexcept { return executor_; }
  [[nodiscard]] allocator_type get_allocator() const noexcept { return asio::get_associated_allocator(handler_); }
  [[nodiscard]] cancellation_slot_type get_cancellation_slot() const noexcept { return cancellation_->section.slot(); }

  template <typename... Results>
  void operator()(Results&&... results) {
    auto slot = asio::get_associated_cancellation_slot(handler_);
    if (slot.is_connected()) slot.clear();
    std::move(handler_)(std::forward<Results>(results)...);
  }

 private:
  executor_type executor_;
  std::shared_ptr<Cancellation> cancellation_;
  Handler handler_;
};

// Runs on the executor of the caller's token, because function is the caller's code.
template <typename Result, typename Function>
asio::awaitable<Result> with_lock(ClientPtr client, CallbacksPtr callbacks, Key key, AcquireOptions options,
                                  std::stop_token wait_stop, Function function,
                                  std::shared_ptr<Cancellation> cancellation) {
  // The section decides which types of cancellation it supports.
  co_await asio::this_coro::reset_cancellation_state(asio::enable_total_cancellation());
  const auto stop = cancellation->stop.get_token();
  auto start = [callbacks, key, options, wait_stop, stop](const ClientPtr& of, const std::stop_token&) {
    return acquire(of, callbacks, key, options, stop, wait_stop);
  };
  Lease lease = co_await initiate(client, start, asio::use_awaitable);

  std::exception_ptr error;
  std::conditional_t<std::is_void_v<Result>, std::monostate, std::optional<Result>> result;
  try {
    expect_no_stop(stop);
    cancellation->section_runs = true;
    if constexpr (std::is_void_v<Result>) {
      if constexpr (std::is_invocable_v<Function, Lease&>) {
        co_await function(lease);
      } else {
        co_await function();
      }
    } else {
      if constexpr (std::is_invocable_v<Function, Lease&>) {
        result = co_await function(lease);
      } else {
        result = co_await function();
      }
    }
  } catch (...) {
    error = std::current_exception();
  }
  cancellation->section_runs = false;

  // The release uses its own stop token: canceling the caller must not prevent it.
  co_await asio::this_coro::throw_if_cancelled(false);
  if (auto state = LeaseAccess::take(lease)) {
    const IfLost if_lost = error ? IfLost::report : options.if_lost;
    auto release = [state, if_lost](const ClientPtr&, const std::stop_token&) { return end_section(state, if_lost); };
    co_await initiate(client, release, asio::use_awaitable);
  }
  if (error) std::rethrow_exception(error);
  if constexpr (!std::is_void_v<Result>) co_return std::move(*result);
}

// Runs on the executor of the caller's token, because callback is the caller's code.
template <typename Function>
asio::awaitable<void> watch(ClientPtr client, Key key, WatchOptions options, Function callback, std::stop_token stop) {
  std::optional<KeyState> last;
  for (;;) {
    auto start = [key, last, options, stop](const ClientPtr& of, const std::stop_token&) {
      return next_change(of, key, last, options, stop);
    };
    last = co_await initiate(client, start, asio::use_awaitable);
    expect_no_stop(stop);
    callback(*last);
  }
}

template <typename Result>
struct CompletionOf {
  using type = void(std::exception_ptr, Result);
};

template <typename Function>
struct AwaitedFrom {
  using Awaitable =
      typename std::conditional_t<std::is_invocable_v<Function, Lease&>, std::invoke_result<Function, Lease&>,
                                  std::invoke_result<Function>>::type;
  using Result = typename Awaitable::value_type;
  using Signature = typename std::conditional_t<std::is_void_v<Result>, std::type_identity<void(std::exception_ptr)>,
                                                CompletionOf<Result>>::type;
};

}  // namespace detail

template <typename CompletionToken>
auto Locks::async_try_acquire(Key key, TryOptions options, CompletionToken&& token) const {
  auto operation = [callbacks = callbacks_, key = std::move(key), options](const detail::ClientPtr& client,
                                                                           std::stop_token stop) {
    return detail::try_acquire(client, callbacks, key, options, std::move(stop));
  };
  return detail::initiate(client_, std::move(operation), std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_acquire(Key key, AcquireOptions options, CompletionToken&& token) const {
  auto wait_stop = detail::take_wait_stop(options);
  auto operation = [callbacks = callbacks_, key = std::move(key), options, wait_stop = std::move(wait_stop)](
                       const detail::ClientPtr& client, std::stop_token stop) {
    return detail::acquire(client, callbacks, key, options, std::move(stop), wait_stop);
  };
  return detail::initiate(client_, std::move(operation), std::forward<CompletionToken>(token));
}

template <typename Function, typename CompletionToken>
auto Locks::async_with_lock(Key key, AcquireOptions options, Function function, CompletionToken&& token) const {
  using Section = detail::AwaitedFrom<Function>;
  auto wait_stop = detail::take_wait_stop(options);
  return asio::async_initiate<CompletionToken, typename Section::Signature>(
      [](auto handler, detail::ClientPtr client, detail::CallbacksPtr callbacks, Key name, AcquireOptions chosen,
         std::stop_token stop_waiting, Function section) {
        const auto executor = detail::section_executor(handler, client);
        auto cancellation = detail::Cancellation::of(handler);
        asio::co_spawn(executor,
                       detail::with_lock<typename Section::Result>(std::move(client), std::move(callbacks),
                                                                   std::move(name), chosen, std::move(stop_waiting),
                                                                   std::move(section), cancellation),
                       detail::SectionHandler(std::move(handler), executor, cancellation));
      },
      token, client_, callbacks_, std::move(key), options, std::move(wait_stop), std::move(function));
}

template <typename CompletionToken>
auto Locks::async_release(LockId id, CompletionToken&& token) const {
  auto operation = [id](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::release(client, id, std::move(stop));
  };
  return detail::initiate(client_, std::move(operation), std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_extend(LockId id, std::chrono::milliseconds ttl, CompletionToken&& token) const {
  auto operation = [id, ttl](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::extend(client, id, ttl, std::move(stop));
  };
  return detail::initiate(client_, std::move(operation), std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_is_locked(Key key, CompletionToken&& token) const {
  auto operation = [key = std::move(key)](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::is_locked(client, key, std::move(stop));
  };
  return detail::initiate(client_, std::move(operation), std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_lookup(Key key, CompletionToken&& token) const {
  auto operation = [key = std::move(key)](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::lookup(client, key, std::move(stop));
  };
  return detail::initiate(client_, std::move(operation), std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_lookup(LockId id, CompletionToken&& token) const {
  auto operation = [id](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::lookup(client, id, std::move(stop));
  };
  return detail::initiate(client_, std::move(operation), std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_get_by_key(Key key, CompletionToken&& token) const {
  return async_lookup(std::move(key), std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_get_by_id(LockId id, CompletionToken&& token) const {
  return async_lookup(id, std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_owns(LockId id, CompletionToken&& token) const {
  auto operation = [id](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::owns(client, id, std::move(stop));
  };
  return detail::initiate(client_, std::move(operation), std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_get_by_key_raw(Key key, CompletionToken&& token) const {
  auto operation = [key = std::move(key)](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::lookup_raw(client, key, std::move(stop));
  };
  return detail::initiate(client_, std::move(operation), std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_get_by_id_raw(LockId id, CompletionToken&& token) const {
  auto operation = [id](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::lookup_raw(client, id, std::move(stop));
  };
  return detail::initiate(client_, std::move(operation), std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_list(ListOptions options, CompletionToken&& token) const {
  auto operation = [prefix = std::string(options.prefix), limit = options.limit, cursor = std::string(options.cursor)](
                       const detail::ClientPtr& client, std::stop_token stop) {
    return detail::list(client, prefix, limit, cursor, std::move(stop));
  };
  return detail::initiate(client_, std::move(operation), std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_inspect(Key key, CompletionToken&& token) const {
  auto operation = [key = std::move(key)](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::inspect(client, key, std::move(stop));
  };
  return detail::initiate(client_, std::move(operation), std::forward<CompletionToken>(token));
}

template <typename Function, typename CompletionToken>
auto Locks::async_watch(Key key, WatchOptions options, Function callback, CompletionToken&& token) const {
  return asio::async_initiate<CompletionToken, void(std::exception_ptr)>(
      [](auto handler, detail::ClientPtr client, Key name, WatchOptions chosen, Function notify) {
        const auto executor = detail::section_executor(handler, client);
        auto cancellation = detail::Cancellation::of(handler);
        auto stop = cancellation->stop.get_token();
        asio::co_spawn(executor,
                       detail::watch(std::move(client), std::move(name), chosen, std::move(notify), std::move(stop)),
                       detail::SectionHandler(std::move(handler), executor, cancellation));
      },
      token, client_, std::move(key), options, std::move(callback));
}

template <typename CompletionToken>
auto Locks::async_break_lock(Key key, Fence fence, CompletionToken&& token) const {
  auto operation = [key = std::move(key), fence](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::break_lock(client, key, fence, std::move(stop));
  };
  return detail::initiate(client_, std::move(operation), std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_fence(Key key, CompletionToken&& token) const {
  auto operation = [key = std::move(key)](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::fence(client, key, std::move(stop));
  };
  return detail::initiate(client_, std::move(operation), std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_raise_fence(Key key, Fence fence, CompletionToken&& token) const {
  auto operation = [key = std::move(key), fence](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::raise_fence(client, key, fence, std::move(stop));
  };
  return detail::initiate(client_, std::move(operation), std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_clean_up(CleanupRequest request, CompletionToken&& token) const {
  auto operation = [request](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::clean_up(client, request, std::move(stop));
  };
  return detail::initiate(client_, std::move(operation), std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_diagnose(CompletionToken&& token) const {
  auto operation = [](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::diagnose(client, std::move(stop));
  };
  return detail::initiate(client_, operation, std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_setup(CompletionToken&& token) const {
  auto operation = [](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::setup(client, std::move(stop));
  };
  return detail::initiate(client_, operation, std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_close(CompletionToken&& token) const {
  auto operation = [](const detail::ClientPtr& client, const std::stop_token&) { return detail::close(client); };
  return detail::initiate(client_, operation, std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Lease::async_extend(std::chrono::milliseconds ttl, CompletionToken&& token) {
  auto operation = [state = state_, ttl](const detail::ClientPtr&, std::stop_token stop) {
    return detail::extend_lease(state, ttl, std::move(stop));
  };
  return detail::initiate(client_.lock(), std::move(operation), std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Lease::async_release(CompletionToken&& token) {
  auto operation = [state = state_](const detail::ClientPtr&, std::stop_token stop) {
    return detail::release_lease(state, std::move(stop));
  };
  return detail::initiate(client_.lock(), std::move(operation), std::forward<CompletionToken>(token));
}

}  // namespace v0_1
}  // namespace syncguard
