/// \file
/// The asynchronous API: every operation with any Asio completion token (a coroutine's use_awaitable, a future, a
/// callback). Blocking calls run the same coroutines. Completions are (std::exception_ptr, result).
#pragma once

#include <syncguard/detail/asio_version.hpp>
#include <syncguard/detail/caller.hpp>
#include <syncguard/detail/immediate_executor.hpp>
#include <syncguard/detail/operations.hpp>
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

// Where completions run unless their token has another executor. Without a client: on Asio's system executor.
SYNCGUARD_EXPORT asio::any_io_executor executor_of(const ClientPtr& client);
// An error if the client was opened in a parent process before a fork; otherwise null.
SYNCGUARD_EXPORT std::exception_ptr refusal_in_child(const Client& client);
// The executor of the operations below.
SYNCGUARD_EXPORT const asio::any_io_executor& coroutine_executor_of(const Client& client);

// Performs an operation. Blocking calls run the same coroutines. The client is not null, and kept alive.
SYNCGUARD_EXPORT asio::awaitable<TryResult> perform(ClientPtr client, TryAcquire operation, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<Lease> perform(ClientPtr client, Acquire operation, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<TryResult> perform(ClientPtr client, Adopt operation, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<bool> perform(ClientPtr client, Release operation, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<std::optional<Timestamp>> perform(ClientPtr client, Extend operation, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<bool> perform(ClientPtr client, IsLocked operation, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<std::optional<LockInfo>> perform(ClientPtr client, Lookup<Key> operation,
                                                                  Caller caller);
SYNCGUARD_EXPORT asio::awaitable<std::optional<LockInfo>> perform(ClientPtr client, Lookup<LockId> operation,
                                                                  Caller caller);
SYNCGUARD_EXPORT asio::awaitable<std::optional<LockRecord>> perform(ClientPtr client, LookupRaw<Key> operation,
                                                                    Caller caller);
SYNCGUARD_EXPORT asio::awaitable<std::optional<LockRecord>> perform(ClientPtr client, LookupRaw<LockId> operation,
                                                                    Caller caller);
SYNCGUARD_EXPORT asio::awaitable<bool> perform(ClientPtr client, Owns operation, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<LockPage> perform(ClientPtr client, List operation, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<KeyState> perform(ClientPtr client, Inspect operation, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<KeyState> perform(ClientPtr client, NextChange operation, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<bool> perform(ClientPtr client, BreakLock operation, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<Fence> perform(ClientPtr client, RaiseFence operation, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<CleanupReply> perform(ClientPtr client, CleanUp operation, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<std::vector<Finding>> perform(ClientPtr client, Diagnose operation, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<std::string> perform(ClientPtr client, Setup operation, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<bool> perform(ClientPtr client, Close operation, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<bool> perform(ClientPtr client, ExtendLease operation, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<bool> perform(ClientPtr client, ReleaseLease operation, Caller caller);
SYNCGUARD_EXPORT asio::awaitable<bool> perform(ClientPtr client, ReleaseLeaseWithRetries operation, Caller caller);
// Releases like the destructor of a lease. If the lease was lost, reports that, and throws LockError(lock_lost) if
// if_lost is IfLost::fail.
SYNCGUARD_EXPORT asio::awaitable<bool> end_section(std::shared_ptr<LeaseState> lease, IfLost if_lost);
// Throws LockError(aborted) if a stop was requested.
SYNCGUARD_EXPORT void expect_no_stop(const std::stop_token& stop);

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

// Starts begin(client, stop_token), which returns an awaitable, and completes token with its result. Without a client,
// completes with an empty result; in a forked child, with an error.
template <typename Begin, typename CompletionToken>
auto initiate(ClientPtr client, Begin begin, CompletionToken&& token) {
  using Result = typename std::invoke_result_t<Begin&, const ClientPtr&, std::stop_token>::value_type;
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
      token, std::move(client), std::move(begin));
}

// The same for an operation. It is moved, not copied, so it can be started once.
template <typename Operation, typename CompletionToken>
auto initiate_operation(ClientPtr client, Operation operation, CompletionToken&& token) {
  auto begin = [operation = std::move(operation)](const ClientPtr& of, std::stop_token stop) mutable {
    return perform(of, std::move(operation), std::move(stop));
  };
  return initiate(std::move(client), std::move(begin), std::forward<CompletionToken>(token));
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
asio::awaitable<Result> with_lock(ClientPtr client, CallbacksPtr callbacks, Key key, SectionOptions options,
                                  Function function, std::shared_ptr<Cancellation> cancellation) {
  // The section decides which types of cancellation it supports.
  co_await asio::this_coro::reset_cancellation_state(asio::enable_total_cancellation());
  const auto stop = cancellation->stop.get_token();
  auto start = [callbacks, key, options, stop](const ClientPtr& of, const std::stop_token&) {
    return perform(of, Acquire{callbacks, key, acquire_options(options)}, stop);
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
      return perform(of, NextChange{key, options, last}, stop);
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

template <typename>
inline constexpr bool is_awaitable = false;
template <typename Result, typename Executor>
inline constexpr bool is_awaitable<asio::awaitable<Result, Executor>> = true;

template <typename>
inline constexpr bool completes_awaitable = false;
template <typename Executor>
inline constexpr bool completes_awaitable<asio::use_awaitable_t<Executor>> = true;

template <typename Function>
struct AwaitedFrom {
  static_assert(Section<Function>, "the function of async_with_lock takes a Lease&, or nothing");
  using Awaitable =
      typename std::conditional_t<std::is_invocable_v<Function, Lease&>, std::invoke_result<Function, Lease&>,
                                  std::invoke_result<Function>>::type;
  static_assert(is_awaitable<Awaitable>, "the function of async_with_lock returns an asio::awaitable");
  using Result = typename Awaitable::value_type;
  using Signature = typename std::conditional_t<std::is_void_v<Result>, std::type_identity<void(std::exception_ptr)>,
                                                CompletionOf<Result>>::type;
};

// g++ 12 destroys temporaries of a co_await expression twice, unless they are trivially copyable. A moved object is no
// temporary, but cannot be told from one here.
template <typename Function, typename CompletionToken>
constexpr bool outlives_co_await() {
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ <= 12
  return !completes_awaitable<std::remove_cvref_t<CompletionToken>> || std::is_lvalue_reference_v<Function> ||
         std::is_trivially_copyable_v<std::remove_cvref_t<Function>>;
#else
  return true;
#endif
}

template <typename CompletionToken>
struct Asynchronous {
  template <typename Operation>
  static auto start(ClientPtr client, Operation operation, CompletionToken&& token) {
    return initiate_operation(std::move(client), std::move(operation), std::forward<CompletionToken>(token));
  }

  // Function: as for std::forward.
  template <typename Function>
  static auto with_lock(const ClientPtr& client, const CallbacksPtr& callbacks, Key key, SectionOptions options,
                        Function&& function, CompletionToken&& token) {
    static_assert(outlives_co_await<Function, CompletionToken>(),
                  "g++ 12 would destroy this closure twice: give it a name before the co_await expression, and pass "
                  "that (or std::ref of it)");
    using Section = AwaitedFrom<std::decay_t<Function>>;
    return asio::async_initiate<CompletionToken, typename Section::Signature>(
        [](auto handler, ClientPtr of, CallbacksPtr with, Key name, SectionOptions chosen, auto section) {
          const auto executor = section_executor(handler, of);
          auto cancellation = Cancellation::of(handler);
          asio::co_spawn(executor,
                         detail::with_lock<typename Section::Result>(std::move(of), std::move(with), std::move(name),
                                                                     chosen, std::move(section), cancellation),
                         SectionHandler(std::move(handler), executor, cancellation));
        },
        token, client, callbacks, std::move(key), options, std::decay_t<Function>(std::forward<Function>(function)));
  }

  template <typename Function>
  static auto watch(const ClientPtr& client, Key key, WatchOptions options, Function&& callback,
                    CompletionToken&& token) {
    static_assert(outlives_co_await<Function, CompletionToken>(),
                  "g++ 12 would destroy this closure twice: give it a name before the co_await expression, and pass "
                  "that (or std::ref of it)");
    return asio::async_initiate<CompletionToken, void(std::exception_ptr)>(
        [](auto handler, ClientPtr of, Key name, WatchOptions chosen, auto notify) {
          const auto executor = section_executor(handler, of);
          auto cancellation = Cancellation::of(handler);
          auto stop = cancellation->stop.get_token();
          asio::co_spawn(executor,
                         detail::watch(std::move(of), std::move(name), chosen, std::move(notify), std::move(stop)),
                         SectionHandler(std::move(handler), executor, cancellation));
        },
        token, client, std::move(key), options, std::decay_t<Function>(std::forward<Function>(callback)));
  }
};

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
