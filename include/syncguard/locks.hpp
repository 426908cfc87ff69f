/// \file
/// The client: the main class of the library.
#pragma once

#include <syncguard/backend_fwd.hpp>
#include <syncguard/capabilities.hpp>
#include <syncguard/client_options.hpp>
#include <syncguard/detail/operations.hpp>
#include <syncguard/error.hpp>
#include <syncguard/export.hpp>
#include <syncguard/key.hpp>
#include <syncguard/lease.hpp>
#include <syncguard/lock_id.hpp>
#include <syncguard/lock_info.hpp>
#include <syncguard/options.hpp>

#include <chrono>
#include <coroutine>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string_view>
#include <type_traits>
#include <utility>

namespace syncguard {
inline namespace v0_1 {

class Admin;
class Locks;

namespace detail {
Locks make_locks(ClientPtr client, CallbacksPtr callbacks);
// Releases like the destructor. If the lease was lost, reports that, and throws LockError(lock_lost) if if_lost is
// IfLost::fail.
SYNCGUARD_EXPORT void end_section(Lease lease, IfLost if_lost);
SYNCGUARD_EXPORT void end_section_after_exception(Lease lease) noexcept;
// A coroutine, or anything else that can be awaited: its work is not done when the function that returns it has
// returned.
template <typename Result>
concept DoneLater = requires {
  typename std::coroutine_traits<std::remove_cvref_t<Result>>::promise_type;
}
|| requires(std::remove_cvref_t<Result> result) { std::move(result).await_ready(); }
|| requires(std::remove_cvref_t<Result> result) { std::move(result).operator co_await(); }
|| requires(std::remove_cvref_t<Result> result) { operator co_await(std::move(result)); };

template <typename Function>
concept Section = std::is_invocable_v<Function, Lease&> || std::is_invocable_v<Function>;

constexpr AcquireOptions acquire_options(const SectionOptions& section) {
  return {.ttl = section.ttl, .auto_extend = section.auto_extend, .max_hold = section.max_hold, .wait = section.wait};
}
}  // namespace detail

/// A client of one store. Thread-safe and cheap to copy; copies share everything. A const client can do everything:
/// like a pointer, it only refers to what it changes.
///
/// Every operation may throw LockError, or std::bad_alloc (docs/errors.md), takes a stop_token that ends it within 50
/// ms with LockError(aborted), and fails with LockError(network_timeout) when it exceeds the operation_timeout. One
/// exception: a blocking call on SQLite that waits for the disk returns when the disk does
/// (docs/adr/0019-blocking-callers-work-themselves.md). Invalid input throws LockError(invalid_argument) before any
/// I/O. A blocking call throws LockError(invalid_argument) on a thread that runs the client's executor, and always on a
/// client that runs on the caller's executor: it would deadlock there. Use the asynchronous counterpart.
///
/// The asynchronous counterparts take any Asio completion token and complete with (std::exception_ptr, result): include
/// `<syncguard/async.hpp>`. The token's cancellation slot replaces the stop token. Completions run on the token's
/// executor, by default the client's: there they must not block, since renewals and timeouts run there too, and must
/// not throw.
///
/// A client does not survive a fork. In the child every call, including asynchronous ones, fails immediately with
/// LockError(invalid_argument), and nothing affects the parent's timers or connections: open another client there. With
/// open_on, first call asio::execution_context::notify_fork on the context.
///
/// The client closes automatically, see close(), when its last copy and its last live lease are gone: a lease keeps its
/// client open, so that `open(url).try_acquire("key")` holds its lock. Leases that were lost, released or detached do
/// not count. Without live leases, destroying the last copy ends pending operations.
class SYNCGUARD_EXPORT Locks {
 public:
  /// Uses the given backend and its own I/O thread. Most programs call open() instead.
  explicit Locks(std::unique_ptr<Backend> backend, ClientOptions options = {});

  /// Makes one attempt. The result is empty if the key is held, or reserved for a waiter.
  [[nodiscard]] TryResult try_acquire(const Key& key, TryOptions options = {}, std::stop_token stop = {}) const;
  template <typename CompletionToken>
  auto async_try_acquire(Key key, TryOptions options, CompletionToken&& token) const {
    return detail::start(client_, detail::TryAcquire{callbacks_, std::move(key), options},
                         std::forward<CompletionToken>(token));
  }

  /// Waits for the lock. Waiters are served in order: within this client on every backend, and across clients if the
  /// store keeps a queue. Throws LockError(acquisition_timeout) after wait.timeout, or after max_retries retries, if
  /// set. Retries transient errors in the meantime.
  [[nodiscard]] Lease acquire(const Key& key, AcquireOptions options = {}, std::stop_token stop = {}) const;
  template <typename CompletionToken>
  auto async_acquire(Key key, AcquireOptions options, CompletionToken&& token) const {
    return detail::start(client_, detail::Acquire{callbacks_, std::move(key), options},
                         std::forward<CompletionToken>(token));
  }

  /// Runs function(lease), or function(), while holding the lock, and returns its result, including references. Waits
  /// for the lock like acquire. Renews it until the function ends, and releases it however the function ends.
  ///
  /// An exception from the function takes precedence over a release error, which goes to Callbacks::on_release_error.
  /// If lost() fired before the function returned, or the release found no lock, another holder may have worked at the
  /// same time: that is reported there, too, and thrown as LockError(lock_lost), unless if_lost says otherwise. stop
  /// ends only the wait for the lock. The function must not be a coroutine, which would run after the release: use
  /// async_with_lock.
  template <typename Function>
  decltype(auto) with_lock(const Key& key, SectionOptions options, Function&& function,
                           std::stop_token stop = {}) const {
    static_assert(detail::Section<Function>, "the function of with_lock takes a Lease&, or nothing");
    Lease lease = acquire(key, detail::acquire_options(options), std::move(stop));
    const auto section = [&]() -> decltype(auto) {
      try {
        if constexpr (std::is_invocable_v<Function, Lease&>) {
          return std::invoke(std::forward<Function>(function), lease);
        } else {
          return std::invoke(std::forward<Function>(function));
        }
      } catch (...) {
        detail::end_section_after_exception(std::move(lease));
        throw;
      }
    };
    using Result = decltype(section());
    static_assert(!detail::DoneLater<Result>,
                  "with_lock would release the lock before this coroutine runs: use async_with_lock, and co_await it");
    if constexpr (std::is_void_v<Result>) {
      section();
      detail::end_section(std::move(lease), options.if_lost);
    } else if constexpr (std::is_reference_v<Result>) {
      Result result = section();
      detail::end_section(std::move(lease), options.if_lost);
      return static_cast<Result>(result);
    } else {
      Result result = section();
      detail::end_section(std::move(lease), options.if_lost);
      return result;
    }
  }
  /// function(lease) or function() returns an asio::awaitable. It runs on the token's executor. Completes with
  /// (std::exception_ptr) if that awaitable has no result. While the function runs, cancellation reaches it instead:
  /// the section ends as it chooses, and the lock is released. Losing the lock does not cancel it; see Lease::lost().
  template <typename Function, typename CompletionToken>
  auto async_with_lock(Key key, SectionOptions options, Function&& function, CompletionToken&& token) const {
    return (void)detail::WithAsyncHeader<CompletionToken>(),
           detail::Asynchronous<CompletionToken>::with_lock(client_, callbacks_, std::move(key), options,
                                                            std::forward<Function>(function),
                                                            std::forward<CompletionToken>(token));
  }

  /// Makes a lease of a lock that was given up with Lease::detach(), in this or another process, and extends it by
  /// options.ttl: so that a lock can be handed to another process. Keeps the fence and the holder's label. The result
  /// is empty if there is no live lock with this id. After an error in doubt, the lock may have been extended. Whether
  /// another lease still holds the lock is not checked: two leases of one lock renew and release the same lock.
  [[nodiscard]] TryResult adopt(const LockId& id, AdoptOptions options = {}, std::stop_token stop = {}) const;
  template <typename CompletionToken>
  auto async_adopt(LockId id, AdoptOptions options, CompletionToken&& token) const {
    return detail::start(client_, detail::Adopt{callbacks_, id, options}, std::forward<CompletionToken>(token));
  }

  /// Releases a lock by its id, from any client; safe to call without owning the lock. Returns false if the lock no
  /// longer exists.
  bool release(const LockId& id, std::stop_token stop = {}) const;
  template <typename CompletionToken>
  auto async_release(LockId id, CompletionToken&& token) const {
    return detail::start(client_, detail::Release{id}, std::forward<CompletionToken>(token));
  }

  /// Replaces the remaining time by ttl and returns the new expiry, or nullopt if the lock no longer exists. Not an
  /// ownership test: a holder uses Lease::remaining() and lost(), diagnosis uses Admin::owns(), and a write needs the
  /// fence.
  std::optional<Timestamp> extend(const LockId& id, std::chrono::milliseconds ttl, std::stop_token stop = {}) const;
  template <typename CompletionToken>
  auto async_extend(LockId id, std::chrono::milliseconds ttl, CompletionToken&& token) const {
    return detail::start(client_, detail::Extend{id, ttl}, std::forward<CompletionToken>(token));
  }

  /// For display, diagnosis and hints. Never guard work with it: the result may be outdated when it arrives.
  [[nodiscard]] bool is_locked(const Key& key, std::stop_token stop = {}) const;
  template <typename CompletionToken>
  auto async_is_locked(Key key, CompletionToken&& token) const {
    return detail::start(client_, detail::IsLocked{std::move(key)}, std::forward<CompletionToken>(token));
  }

  /// The live lock of the key, without raw identifiers, or nullopt for both expired and absent.
  [[nodiscard]] std::optional<LockInfo> lookup(const Key& key, std::stop_token stop = {}) const;
  template <typename CompletionToken>
  auto async_lookup(Key key, CompletionToken&& token) const {
    return detail::start(client_, detail::Lookup<Key>{std::move(key)}, std::forward<CompletionToken>(token));
  }
  /// The same by id.
  [[nodiscard]] std::optional<LockInfo> lookup(const LockId& id, std::stop_token stop = {}) const;
  template <typename CompletionToken>
  auto async_lookup(LockId id, CompletionToken&& token) const {
    return detail::start(client_, detail::Lookup<LockId>{id}, std::forward<CompletionToken>(token));
  }

  /// What operators do with this client's store: list, inspect, watch and break locks, check the store, set it up.
  /// Include `<syncguard/admin.hpp>`, or `<syncguard/syncguard.hpp>`.
  [[nodiscard]] Admin admin() const;

  /// The backend's capabilities: its name, whether it returns fences, the time authority, and the default
  /// operation_timeout. Without I/O.
  [[nodiscard]] Capabilities capabilities() const;

  /// Returns a copy with other callbacks. It shares everything else.
  [[nodiscard]] Locks with(Callbacks callbacks) const;

  /// Ends operations and waits with LockError(aborted). Then every live lease stops being held, its lost() fires, and
  /// only then its lock is released, as far as possible within dispose_timeout. Does not wait for callbacks on lost();
  /// waits for other callbacks within dispose_timeout. Later operations throw LockError(aborted). May be called
  /// repeatedly and from any thread; on a thread that runs the client's executor it only starts closing.
  void close() const;
  /// Completes with (std::exception_ptr, bool): true when the client is closed. False, at once, in a callback of a
  /// client that another thread is closing, because that thread waits for the callback. Cannot be canceled. A client of
  /// open_on that has connected keeps its context running until it is closed.
  template <typename CompletionToken>
  auto async_close(CompletionToken&& token) const {
    return detail::start(client_, detail::Close{}, std::forward<CompletionToken>(token));
  }

 private:
  friend class Admin;
  friend Locks detail::make_locks(detail::ClientPtr client, detail::CallbacksPtr callbacks);
  Locks() = default;

  detail::ClientPtr client_;
  detail::CallbacksPtr callbacks_;
  // The client closes with the last copy of this.
  std::shared_ptr<void> keeps_open_;
};

/// Opens a client by URL: "memory:", and every scheme that is built in or registered. Does not connect; the first
/// operation does. Every backend accepts the option operation_timeout. Throws LockError(invalid_argument) that names an
/// unknown scheme, option or value and the known ones. For PostgreSQL, libpq checks the options that are not
/// SyncGuard's, and the known ones are not listed.
[[nodiscard]] SYNCGUARD_EXPORT Locks open(std::string_view url, ClientOptions options = {});

}  // namespace v0_1
}  // namespace syncguard
