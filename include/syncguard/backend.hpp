/// \file
/// The backend interface: five operations that each make one atomic attempt against the store, and optionally a queue
/// of waiters per key (`<syncguard/wait_ticket.hpp>`). Everything else (waiting, renewing, releasing, sanitizing,
/// telemetry, blocking calls) is implemented once, above this interface, for all backends.
///
/// Rules for implementations:
///
/// - One attempt per call, no retries. Contention and absence are return values; every other failure throws LockError.
///   Any other exception becomes LockError(internal), in doubt.
/// - Coroutines start on the caller's thread and continue wherever their I/O completes: guard shared state.
///   `co_await asio::this_coro::executor` gives an executor for sockets and timers. Only a thread for which
///   CallLimits::may_block() is true may be blocked.
/// - Arguments passed by reference outlive the returned awaitable.
/// - A call ends by its deadline with network_timeout, and within 50 ms of a stop request with aborted; both in doubt
///   if the request may have been sent.
/// - is_live() in syncguard/liveness.hpp decides whether a lock is live, with now read inside the atomic step.
///   expires_at and remaining are computed there, too. To share a store with other SyncGuard libraries, use
///   syncguard/storage_key.hpp.
///
/// The suite in syncguard/testing/contract_suite.hpp checks everything that can be checked without breaking your
/// server.
#pragma once

#include <syncguard/admin_types.hpp>
#include <syncguard/backend_fwd.hpp>
#include <syncguard/call_limits.hpp>
#include <syncguard/capabilities.hpp>
#include <syncguard/diagnosis.hpp>
#include <syncguard/error.hpp>
#include <syncguard/export.hpp>
#include <syncguard/lock_info.hpp>
#include <syncguard/requests.hpp>
#include <syncguard/wait_ticket.hpp>

#include <asio/awaitable.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace syncguard {
inline namespace v0_1 {

/// A store of locks, as one client uses it. An implementation has capabilities() and the five operations; everything
/// else has a default. A wrapper around another backend derives from ForwardingBackend instead, which has no defaults.
class SYNCGUARD_EXPORT Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend();

  /// Constant, and without I/O.
  [[nodiscard]] virtual Capabilities capabilities() const = 0;

  /// \name The five operations
  /// Each makes one atomic attempt. lookup has two forms.
  /// \{

  /// Acquires the lock if it is free. Idempotent in its lock id: repeated while that lock is live, it returns the same
  /// fence and expiry. Removes lock_id from the key's queue when it grants.
  virtual asio::awaitable<AcquireReply> acquire(const AcquireRequest& request, const CallLimits& limits) = 0;
  /// Removes the lock if it is live and has this id. Gives the oldest waiter its turn if the key has a queue.
  virtual asio::awaitable<ReleaseReply> release(const LockId& id, const CallLimits& limits) = 0;
  /// Replaces the remaining time if the lock is live and has this id. Never revives a lock.
  virtual asio::awaitable<ExtendReply> extend(const LockId& id, std::chrono::milliseconds ttl,
                                              const CallLimits& limits) = 0;
  /// Whether the key has a live lock. Changes nothing, unless cleanup_in_is_locked is on.
  virtual asio::awaitable<bool> is_locked(const Key& key, const CallLimits& limits) = 0;
  /// The live lock, or nullopt for both absent and expired. Read-only.
  virtual asio::awaitable<std::optional<LockRecord>> lookup(const Key& key, const CallLimits& limits) = 0;
  /// The same by id. Also nullopt if the key now belongs to another lock.
  virtual asio::awaitable<std::optional<LockRecord>> lookup(const LockId& id, const CallLimits& limits) = 0;

  /// \}

  /// \name Optional: waiting, and requests in doubt
  /// \{

  /// Makes sure that an acquire that ended in doubt leaves no lock behind. Must not overtake that acquire if it is
  /// still pending. By default a release, which is correct if requests with the same lock id cannot overtake each
  /// other.
  virtual asio::awaitable<void> retract(const AcquireRequest& request, const CallLimits& limits);

  /// Joins the key's queue, under the request's lock id. The place is active in the store when this returns: from then
  /// on, wake is called (from any thread, possibly more than once, possibly spuriously) when the request may be
  /// granted. Returns null if the backend cannot notify waiters, the default; the client then polls.
  virtual asio::awaitable<std::unique_ptr<WaitTicket>> join(const AcquireRequest& request, std::function<void()> wake,
                                                            const CallLimits& limits);

  /// \}

  /// \name Optional: maintenance of the store
  /// \{

  /// Checks whether the store is fit for locks: one finding per check, in the order in which they should be fixed.
  /// Changes nothing that other clients can see. A store that is unreachable or rejects the client is a finding; only a
  /// stop request throws. By default one finding: that there is nothing to check.
  virtual asio::awaitable<std::vector<Finding>> diagnose(const CallLimits& limits);
  /// Creates what the store needs before it can hold locks. Returns a message that says what was created, or that
  /// nothing was needed. Safe to repeat and to run concurrently. By default nothing is needed.
  virtual asio::awaitable<std::string> setup(const CallLimits& limits);
  /// The SQL with which an administrator can create the same instead, in a store that has nothing yet. Safe to repeat.
  /// Without I/O. Empty, the default, if the store needs no setup.
  [[nodiscard]] virtual std::string setup_script() const;

  /// Removes or counts locks that expired long ago, never a fence counter; see CleanupRequest. It is optional: an
  /// acquire replaces expired locks. By default there is nothing to do.
  virtual asio::awaitable<CleanupReply> clean_up(const CleanupRequest& request, const CallLimits& limits);

  /// \}

  /// \name Optional: administration
  /// By default each throws LockError(invalid_argument), because the backend does not support it.
  /// \{

  /// A page of the live locks. A call examines a bounded number of entries: a page may be empty and still have a
  /// cursor. Every lock that is live from the first page to the last appears, possibly twice.
  virtual asio::awaitable<LockPage> list(const ListRequest& request, const CallLimits& limits);
  /// The state of a key. Read-only.
  virtual asio::awaitable<KeyState> inspect(const Key& key, const CallLimits& limits);
  /// Removes the live lock of a key if it has this fence, like a release. Returns false if there is no such lock.
  virtual asio::awaitable<bool> break_lock(const Key& key, Fence fence, const CallLimits& limits);
  /// Raises the key's fence counter to at least this value, which is below Fence::refuse_above. Never lowers it.
  /// Returns the new value.
  virtual asio::awaitable<Fence> raise_fence(const Key& key, Fence fence, const CallLimits& limits);

  /// \}

  /// \name Optional: what a backend tells its client, and closing
  /// \{

  /// How far this host's clock is ahead of the store's (negative: behind): the part that network delays cannot explain.
  /// nullopt if the store's own clock decides (the default), and before the first reply.
  [[nodiscard]] virtual std::optional<std::chrono::milliseconds> clock_skew() const noexcept;

  /// The number of open connections to the store, for Metrics. Any thread may call it; must not block on the store. By
  /// default zero.
  [[nodiscard]] virtual std::size_t connections() const noexcept;

  /// Calls gone, from any thread, when the store has lost every lock that it granted to this backend (for example
  /// because the database was deleted): their leases are then lost. Called once, before the first operation. By default
  /// gone is never called.
  virtual void on_locks_gone(std::function<void()> gone);

  /// Called once, before running operations are asked to stop and leases are released. close() follows. Must not block.
  /// By default does nothing.
  virtual void closing_begins() noexcept;
  /// Called once, after the last operation has ended. Closes connections. By default does nothing.
  virtual asio::awaitable<void> close(const CallLimits& limits);

  /// \}
};

}  // namespace v0_1
}  // namespace syncguard
