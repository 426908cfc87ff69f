/// \file
/// The client: the main class of the library.
#pragma once

#include <syncguard/administration.hpp>
#include <syncguard/backend_fwd.hpp>
#include <syncguard/capabilities.hpp>
#include <syncguard/client_options.hpp>
#include <syncguard/diagnosis.hpp>
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
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace syncguard {
inline namespace v0_1 {

class Locks;

namespace detail {
class Client;
Locks make_locks(std::shared_ptr<Client> client, std::shared_ptr<const Callbacks> callbacks);
// Releases like the destructor. Throws LockError(lock_lost) if the lock was gone and if_lost is IfLost::fail.
SYNCGUARD_EXPORT void end_section(Lease lease, IfLost if_lost);
// A coroutine, or anything else that can be awaited: its work is not done when the function that returns it has
// returned.
template <typename Result>
concept DoneLater = requires {
  typename std::coroutine_traits<std::remove_cvref_t<Result>>::promise_type;
}
|| requires(std::remove_cvref_t<Result> result) { std::move(result).await_ready(); }
|| requires(std::remove_cvref_t<Result> result) { std::move(result).operator co_await(); }
|| requires(std::remove_cvref_t<Result> result) { operator co_await(std::move(result)); };
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

  /// Waits for the lock. Waiters are served in order: within this client on every backend, and across clients if the
  /// store keeps a queue. Throws LockError(acquisition_timeout) after wait.timeout, or after max_retries retries, if
  /// set. Retries transient errors in the meantime.
  [[nodiscard]] Lease acquire(const Key& key, AcquireOptions options = {}, std::stop_token stop = {}) const;

  /// Runs function(lease), or function(), while holding the lock, and returns its result, including references.
  /// Releases the lock however the function ends. An exception from the function takes precedence over a release error,
  /// which goes to Callbacks::on_release_error. If the lock was gone before the function returned, that is reported
  /// there, too, with the code lock_lost; with if_lost = IfLost::fail it is thrown instead. The function must not be a
  /// coroutine, which would run after the release: use async_with_lock.
  template <typename Function>
  decltype(auto) with_lock(const Key& key, AcquireOptions options, Function&& function,
                           std::stop_token stop = {}) const {
    Lease lease = acquire(key, options, std::move(stop));
    const auto section = [&]() -> decltype(auto) {
      if constexpr (std::is_invocable_v<Function, Lease&>) {
        return std::invoke(std::forward<Function>(function), lease);
      } else {
        return std::invoke(std::forward<Function>(function));
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

  /// Releases a lock by its id, from any client; safe to call without owning the lock. Returns false if the lock no
  /// longer exists.
  bool release(const LockId& id, std::stop_token stop = {}) const;
  /// Replaces the remaining time by ttl and returns the new expiry, or nullopt if the lock no longer exists. Not an
  /// ownership test: a holder uses Lease::remaining() and lost(), diagnosis uses owns(), and a write needs the fence.
  std::optional<Timestamp> extend(const LockId& id, std::chrono::milliseconds ttl, std::stop_token stop = {}) const;

  /// For display, diagnosis and hints. Never guard work with it: the result may be outdated when it arrives.
  [[nodiscard]] bool is_locked(const Key& key, std::stop_token stop = {}) const;
  /// Returns nullopt for both expired and absent.
  [[nodiscard]] std::optional<LockInfo> lookup(const Key& key, std::stop_token stop = {}) const;
  [[nodiscard]] std::optional<LockInfo> lookup(const LockId& id, std::stop_token stop = {}) const;
  /// The same as lookup, under the names that other SyncGuard libraries use.
  [[nodiscard]] std::optional<LockInfo> get_by_key(const Key& key, std::stop_token stop = {}) const;
  [[nodiscard]] std::optional<LockInfo> get_by_id(const LockId& id, std::stop_token stop = {}) const;
  /// Whether the lock with this id is live.
  [[nodiscard]] bool owns(const LockId& id, std::stop_token stop = {}) const;
  /// With raw identifiers, for debugging: never log them.
  [[nodiscard]] std::optional<LockRecord> get_by_key_raw(const Key& key, std::stop_token stop = {}) const;
  [[nodiscard]] std::optional<LockRecord> get_by_id_raw(const LockId& id, std::stop_token stop = {}) const;

  /// A page of the live locks, in no particular order, for operators. Reads a bounded part of the store: call it again
  /// with the cursor of the page until that is empty. Every lock that is live from the first page to the last appears;
  /// on Redis it may appear twice. Throws LockError(invalid_argument) if the backend does not support this, and for a
  /// cursor that is not from a page.
  [[nodiscard]] LockPage list(ListOptions options = {}, std::stop_token stop = {}) const;
  /// The state of a key: its lock with the holder and the number of waiters, its fence counter, and the store's time.
  /// For display and diagnosis, like is_locked().
  [[nodiscard]] KeyState inspect(const Key& key, std::stop_token stop = {}) const;
  /// Calls callback with the state of the key, then again after every change of its holder or fence, and when it
  /// becomes free or locked. Not when the lock is extended. States that change back, or change again while callback
  /// runs, are left out: only the latest one counts. Transient errors are retried forever. Returns when a stop is
  /// requested; throws other errors, and those of callback, which runs on this thread.
  void watch(const Key& key, const std::function<void(const KeyState&)>& callback, WatchOptions options = {},
             std::stop_token stop = {}) const;
  /// Releases the lock of another holder, for operators: its holder no longer works, and its ttl is too long to wait.
  /// Only if the lock still has this fence. Returns false if it has not, or if the key is free. Logs a warning. The
  /// holder is not notified: it finds out at its next renewal, and only checked fences stop it until then.
  bool break_lock(const Key& key, Fence fence, std::stop_token stop = {}) const;
  /// The key's fence counter: the newest fence that was granted. Zero if the key was never locked.
  [[nodiscard]] Fence fence(const Key& key, std::stop_token stop = {}) const;
  /// Raises the key's fence counter to at least this value and returns the new value; never lowers it. After a restore
  /// of the store, raise it to the newest fence that a protected resource has seen. Throws LockError(invalid_argument)
  /// from Fence::refuse_above on, where the key could not be locked anymore.
  Fence raise_fence(const Key& key, Fence fence, std::stop_token stop = {}) const;
  /// Removes locks that expired long ago, at most a limited number per call (see CleanupReply::more), or counts all of
  /// them. Never removes a fence counter. Only saves space: an acquire replaces expired locks.
  CleanupReply clean_up(CleanupRequest request = {}, std::stop_token stop = {}) const;

  /// Checks whether the store is fit for locks, and says how to fix it if not. A store that is unreachable or rejects
  /// the client is a finding, not an error. Changes nothing that other clients can see. For deployments and diagnosis,
  /// not for every start of a program: it takes several round trips, all within one operation_timeout.
  [[nodiscard]] std::vector<Finding> diagnose(std::stop_token stop = {}) const;
  /// Creates what the store needs before it can hold locks (tables, a file). Returns a message that says what was
  /// created, or that nothing was needed. Safe to repeat and to run concurrently.
  std::string setup(std::stop_token stop = {}) const;
  /// The SQL with which an administrator can create the same instead of setup(), in a store that has nothing yet. Safe
  /// to repeat. Empty if the store needs no setup. Without I/O.
  [[nodiscard]] std::string setup_script() const;

  /// The backend's capabilities: its name, whether it returns fences, the time authority, and the default
  /// operation_timeout. Without I/O.
  [[nodiscard]] Capabilities capabilities() const;

  /// How far this host's clock is ahead of the store's (negative: behind): the part that is certain, because network
  /// delays cannot explain it. nullopt if the store's own clock decides about expiry (every backend except Firestore),
  /// and before the first reply.
  [[nodiscard]] std::optional<std::chrono::milliseconds> clock_skew() const noexcept;

  /// Returns a copy with other callbacks. It shares everything else.
  [[nodiscard]] Locks with(Callbacks callbacks) const;

  /// Ends operations and waits with LockError(aborted). Then every live lease stops being held, its lost() fires, and
  /// only then its lock is released, as far as possible within dispose_timeout. Does not wait for callbacks on lost();
  /// waits for other callbacks within dispose_timeout. Later operations throw LockError(aborted). May be called
  /// repeatedly and from any thread; on a thread that runs the client's executor it only starts closing.
  void close() const;

  /// The asynchronous counterparts, which take any Asio completion token and complete with (std::exception_ptr,
  /// result): include `<syncguard/async.hpp>`. The token's cancellation slot replaces the stop token. Completions run
  /// on the token's executor, by default the client's: there they must not block, since renewals and timeouts run there
  /// too, and must not throw.
  template <typename CompletionToken>
  auto async_try_acquire(Key key, TryOptions options, CompletionToken&& token) const;
  template <typename CompletionToken>
  auto async_acquire(Key key, AcquireOptions options, CompletionToken&& token) const;
  /// function(lease) or function() returns an awaitable.
  template <typename Function, typename CompletionToken>
  auto async_with_lock(Key key, AcquireOptions options, Function function, CompletionToken&& token) const;
  template <typename CompletionToken>
  auto async_release(LockId id, CompletionToken&& token) const;
  template <typename CompletionToken>
  auto async_extend(LockId id, std::chrono::milliseconds ttl, CompletionToken&& token) const;
  template <typename CompletionToken>
  auto async_is_locked(Key key, CompletionToken&& token) const;
  template <typename CompletionToken>
  auto async_lookup(Key key, CompletionToken&& token) const;
  template <typename CompletionToken>
  auto async_lookup(LockId id, CompletionToken&& token) const;
  template <typename CompletionToken>
  auto async_get_by_key(Key key, CompletionToken&& token) const;
  template <typename CompletionToken>
  auto async_get_by_id(LockId id, CompletionToken&& token) const;
  template <typename CompletionToken>
  auto async_owns(LockId id, CompletionToken&& token) const;
  template <typename CompletionToken>
  auto async_get_by_key_raw(Key key, CompletionToken&& token) const;
  template <typename CompletionToken>
  auto async_get_by_id_raw(LockId id, CompletionToken&& token) const;
  template <typename CompletionToken>
  auto async_list(ListOptions options, CompletionToken&& token) const;
  template <typename CompletionToken>
  auto async_inspect(Key key, CompletionToken&& token) const;
  /// callback(state) runs on the token's executor. Completes with (std::exception_ptr), never without an error: with
  /// LockError(aborted) if it was canceled.
  template <typename Function, typename CompletionToken>
  auto async_watch(Key key, WatchOptions options, Function callback, CompletionToken&& token) const;
  template <typename CompletionToken>
  auto async_break_lock(Key key, Fence fence, CompletionToken&& token) const;
  template <typename CompletionToken>
  auto async_fence(Key key, CompletionToken&& token) const;
  template <typename CompletionToken>
  auto async_raise_fence(Key key, Fence fence, CompletionToken&& token) const;
  template <typename CompletionToken>
  auto async_clean_up(CleanupRequest request, CompletionToken&& token) const;
  template <typename CompletionToken>
  auto async_diagnose(CompletionToken&& token) const;
  template <typename CompletionToken>
  auto async_setup(CompletionToken&& token) const;
  template <typename CompletionToken>
  auto async_close(CompletionToken&& token) const;

 private:
  friend Locks detail::make_locks(std::shared_ptr<detail::Client> client, std::shared_ptr<const Callbacks> callbacks);
  Locks() = default;

  std::shared_ptr<detail::Client> client_;
  std::shared_ptr<const Callbacks> callbacks_;
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
