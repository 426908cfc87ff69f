// The asynchronous side: every operation with any Asio completion token (a coroutine's use_awaitable, a future, a
// callback), driving the same coroutines as the blocking calls. Completions are (std::exception_ptr, result).
#pragma once

#include <syncguard/detail/access.hpp>
#include <syncguard/syncguard.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/awaitable.hpp>
#include <asio/bind_executor.hpp>
#include <asio/cancellation_type.hpp>
#include <asio/co_spawn.hpp>
#include <asio/dispatch.hpp>
#include <asio/post.hpp>
#include <asio/system_executor.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>

#include <chrono>
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

// Opens a client that has no thread of its own for I/O: that completes on the caller's executor, whose context must
// outlive the client and its leases. Operations begin on the thread that starts them; lost(), on_release_error and
// on_extended run on threads of the library's, random wherever the operation is. Such a client refuses blocking calls,
// and its leases release in the background.
[[nodiscard]] SYNCGUARD_EXPORT Locks open_on(asio::any_io_executor executor, std::string_view url,
                                             ClientOptions options = {});
[[nodiscard]] SYNCGUARD_EXPORT Locks open_on(asio::any_io_executor executor, std::unique_ptr<Backend> backend,
                                             ClientOptions options = {});

namespace detail {

using ClientPtr = std::shared_ptr<Client>;
using CallbacksPtr = std::shared_ptr<const Callbacks>;

// Where completions run unless their token says otherwise.
SYNCGUARD_EXPORT asio::any_io_executor executor_of(const Client& client);
// What the operations below run on.
SYNCGUARD_EXPORT asio::any_io_executor coroutine_executor_of(const Client& client);

// The operations themselves. Blocking calls drive the same ones.
SYNCGUARD_EXPORT asio::awaitable<std::optional<Lease>> try_acquire(ClientPtr client, CallbacksPtr callbacks, Key key,
                                                                   TryOptions options, std::stop_token stop);
SYNCGUARD_EXPORT asio::awaitable<Lease> acquire(ClientPtr client, CallbacksPtr callbacks, Key key,
                                                AcquireOptions options, std::stop_token stop,
                                                std::stop_token wait_stop);
SYNCGUARD_EXPORT asio::awaitable<bool> release(ClientPtr client, LockId id, std::stop_token stop);
SYNCGUARD_EXPORT asio::awaitable<std::optional<Timestamp>> extend(ClientPtr client, LockId id,
                                                                  std::chrono::milliseconds ttl, std::stop_token stop);
SYNCGUARD_EXPORT asio::awaitable<bool> is_locked(ClientPtr client, Key key, std::stop_token stop);
SYNCGUARD_EXPORT asio::awaitable<std::optional<LockRecord>> lookup_raw(ClientPtr client, Key key, std::stop_token stop);
SYNCGUARD_EXPORT asio::awaitable<std::optional<LockRecord>> lookup_raw(ClientPtr client, LockId id,
                                                                       std::stop_token stop);
SYNCGUARD_EXPORT asio::awaitable<std::optional<LockInfo>> lookup(ClientPtr client, Key key, std::stop_token stop);
SYNCGUARD_EXPORT asio::awaitable<std::optional<LockInfo>> lookup(ClientPtr client, LockId id, std::stop_token stop);
SYNCGUARD_EXPORT asio::awaitable<bool> owns(ClientPtr client, LockId id, std::stop_token stop);
SYNCGUARD_EXPORT asio::awaitable<std::vector<Finding>> diagnose(ClientPtr client, std::stop_token stop);
SYNCGUARD_EXPORT asio::awaitable<std::string> setup(ClientPtr client, std::stop_token stop);
SYNCGUARD_EXPORT asio::awaitable<bool> extend_lease(std::shared_ptr<LeaseState> lease, std::chrono::milliseconds ttl,
                                                    std::stop_token stop);
SYNCGUARD_EXPORT asio::awaitable<bool> release_lease(std::shared_ptr<LeaseState> lease, std::stop_token stop);
// As the destructor of a lease would: never throws, reports to on_release_error.
SYNCGUARD_EXPORT asio::awaitable<bool> dispose_lease(std::shared_ptr<LeaseState> lease);
SYNCGUARD_EXPORT asio::awaitable<bool> close(ClientPtr client);
SYNCGUARD_EXPORT ClientPtr client_of(const LeaseState& lease);

// Options are read when the call starts; what they point to need not live longer.
inline std::stop_token take_wait_stop(AcquireOptions& options) {
  const std::stop_token* stop = std::exchange(options.wait.stop, nullptr);
  return stop != nullptr ? *stop : std::stop_token();
}

// Whether an executor, such as that of asio::use_future, belongs to no context.
template <typename Executor>
inline constexpr bool completes_anywhere = !std::is_convertible_v<Executor, asio::any_io_executor>;

// Starts operation(client, stop_token) and completes token with what comes of it.
template <typename Operation, typename CompletionToken>
auto initiate(ClientPtr client, Operation operation, CompletionToken&& token) {
  using Result = typename std::invoke_result_t<Operation&, const ClientPtr&, std::stop_token>::value_type;
  return asio::async_initiate<CompletionToken, void(std::exception_ptr, Result)>(
      [](auto handler, const ClientPtr& of, auto start) {
        std::stop_source stop(std::nostopstate);
        auto slot = asio::get_associated_cancellation_slot(handler);
        if (slot.is_connected()) {
          stop = std::stop_source();
          slot.assign([stop](asio::cancellation_type) mutable { stop.request_stop(); });
        }
        const auto executor = asio::get_associated_executor(handler, executor_of(*of));
        // Whatever ends the coroutine (the reader of a connection, for one) must not have to wait for the application's
        // code: that is always posted. Meanwhile the application's context has something to wait for.
        auto work = asio::prefer(executor, asio::execution::outstanding_work.tracked);
        asio::co_spawn(coroutine_executor_of(*of), start(of, stop.get_token()),
                       [handler = std::move(handler), work = std::move(work), slot, of](std::exception_ptr error,
                                                                                        Result result) mutable {
                         auto complete = [handler = std::move(handler), slot, of, error = std::move(error),
                                          result = std::move(result)]() mutable {
                           if (slot.is_connected()) slot.clear();
                           std::move(handler)(std::move(error), std::move(result));
                         };
                         // A future's handler only stores the result; posting it would start the system's threads.
                         if constexpr (completes_anywhere<decltype(work)>) {
                           asio::dispatch(work, std::move(complete));
                         } else {
                           asio::post(work, std::move(complete));
                         }
                       });
      },
      token, std::move(client), std::move(operation));
}

// Completes token with false, for a lease that holds nothing.
template <typename CompletionToken>
auto complete_with_false(CompletionToken&& token) {
  return asio::async_initiate<CompletionToken, void(std::exception_ptr, bool)>(
      [](auto handler) {
        const auto executor = asio::get_associated_executor(handler, asio::system_executor());
        asio::post(executor,
                   [handler = std::move(handler)]() mutable { std::move(handler)(std::exception_ptr(), false); });
      },
      token);
}

// Runs on the executor of the caller's token, since function is the caller's code.
template <typename Result, typename Function>
asio::awaitable<Result> with_lock(ClientPtr client, CallbacksPtr callbacks, Key key, AcquireOptions options,
                                  std::stop_token wait_stop, Function function) {
  auto start = [callbacks, key, options, wait_stop](const ClientPtr& of, std::stop_token stop) {
    return acquire(of, callbacks, key, options, std::move(stop), wait_stop);
  };
  Lease lease = co_await initiate(client, start, asio::use_awaitable);

  std::exception_ptr error;
  std::conditional_t<std::is_void_v<Result>, std::monostate, std::optional<Result>> result;
  try {
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

  // The release has a token of its own: that the caller was cancelled must not keep the lock.
  co_await asio::this_coro::throw_if_cancelled(false);
  if (auto state = LeaseAccess::take(lease)) {
    auto dispose = [state](const ClientPtr&, const std::stop_token&) { return dispose_lease(state); };
    co_await initiate(client, dispose, asio::use_awaitable);
  }
  if (error) std::rethrow_exception(error);
  if constexpr (!std::is_void_v<Result>) co_return std::move(*result);
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
  return detail::initiate(detail::LocksAccess::client(*this), std::move(operation),
                          std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_acquire(Key key, AcquireOptions options, CompletionToken&& token) const {
  auto wait_stop = detail::take_wait_stop(options);
  auto operation = [callbacks = callbacks_, key = std::move(key), options, wait_stop = std::move(wait_stop)](
                       const detail::ClientPtr& client, std::stop_token stop) {
    return detail::acquire(client, callbacks, key, options, std::move(stop), wait_stop);
  };
  return detail::initiate(detail::LocksAccess::client(*this), std::move(operation),
                          std::forward<CompletionToken>(token));
}

template <typename Function, typename CompletionToken>
auto Locks::async_with_lock(Key key, AcquireOptions options, Function function, CompletionToken&& token) const {
  using Section = detail::AwaitedFrom<Function>;
  auto wait_stop = detail::take_wait_stop(options);
  return asio::async_initiate<CompletionToken, typename Section::Signature>(
      [](auto handler, detail::ClientPtr client, detail::CallbacksPtr callbacks, Key name, AcquireOptions chosen,
         std::stop_token stop_waiting, Function section) {
        const auto associated = asio::get_associated_executor(handler, detail::executor_of(*client));
        asio::any_io_executor executor;
        if constexpr (detail::completes_anywhere<decltype(associated)>) {
          executor = detail::executor_of(*client);
        } else {
          executor = associated;
        }
        asio::co_spawn(
            executor,
            detail::with_lock<typename Section::Result>(std::move(client), std::move(callbacks), std::move(name),
                                                        chosen, std::move(stop_waiting), std::move(section)),
            std::move(handler));
      },
      token, detail::LocksAccess::client(*this), callbacks_, std::move(key), options, std::move(wait_stop),
      std::move(function));
}

template <typename CompletionToken>
auto Locks::async_release(LockId id, CompletionToken&& token) const {
  auto operation = [id](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::release(client, id, std::move(stop));
  };
  return detail::initiate(detail::LocksAccess::client(*this), std::move(operation),
                          std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_extend(LockId id, std::chrono::milliseconds ttl, CompletionToken&& token) const {
  auto operation = [id, ttl](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::extend(client, id, ttl, std::move(stop));
  };
  return detail::initiate(detail::LocksAccess::client(*this), std::move(operation),
                          std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_is_locked(Key key, CompletionToken&& token) const {
  auto operation = [key = std::move(key)](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::is_locked(client, key, std::move(stop));
  };
  return detail::initiate(detail::LocksAccess::client(*this), std::move(operation),
                          std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_lookup(Key key, CompletionToken&& token) const {
  auto operation = [key = std::move(key)](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::lookup(client, key, std::move(stop));
  };
  return detail::initiate(detail::LocksAccess::client(*this), std::move(operation),
                          std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_lookup(LockId id, CompletionToken&& token) const {
  auto operation = [id](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::lookup(client, id, std::move(stop));
  };
  return detail::initiate(detail::LocksAccess::client(*this), std::move(operation),
                          std::forward<CompletionToken>(token));
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
  return detail::initiate(detail::LocksAccess::client(*this), std::move(operation),
                          std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_get_by_key_raw(Key key, CompletionToken&& token) const {
  auto operation = [key = std::move(key)](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::lookup_raw(client, key, std::move(stop));
  };
  return detail::initiate(detail::LocksAccess::client(*this), std::move(operation),
                          std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_get_by_id_raw(LockId id, CompletionToken&& token) const {
  auto operation = [id](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::lookup_raw(client, id, std::move(stop));
  };
  return detail::initiate(detail::LocksAccess::client(*this), std::move(operation),
                          std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_diagnose(CompletionToken&& token) const {
  auto operation = [](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::diagnose(client, std::move(stop));
  };
  return detail::initiate(detail::LocksAccess::client(*this), operation, std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_setup(CompletionToken&& token) const {
  auto operation = [](const detail::ClientPtr& client, std::stop_token stop) {
    return detail::setup(client, std::move(stop));
  };
  return detail::initiate(detail::LocksAccess::client(*this), operation, std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Locks::async_close(CompletionToken&& token) const {
  auto operation = [](const detail::ClientPtr& client, const std::stop_token&) { return detail::close(client); };
  return detail::initiate(detail::LocksAccess::client(*this), operation, std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Lease::async_extend(std::chrono::milliseconds ttl, CompletionToken&& token) {
  if (!state_) return detail::complete_with_false(std::forward<CompletionToken>(token));
  auto operation = [state = state_, ttl](const detail::ClientPtr&, std::stop_token stop) {
    return detail::extend_lease(state, ttl, std::move(stop));
  };
  return detail::initiate(detail::client_of(*state_), std::move(operation), std::forward<CompletionToken>(token));
}

template <typename CompletionToken>
auto Lease::async_release(CompletionToken&& token) {
  if (!state_) return detail::complete_with_false(std::forward<CompletionToken>(token));
  auto operation = [state = state_](const detail::ClientPtr&, std::stop_token stop) {
    return detail::release_lease(state, std::move(stop));
  };
  return detail::initiate(detail::client_of(*state_), std::move(operation), std::forward<CompletionToken>(token));
}

}  // namespace syncguard
