/// \file
/// A held lock.
#pragma once

#include <syncguard/boot_clock.hpp>
#include <syncguard/detail/operations.hpp>
#include <syncguard/export.hpp>
#include <syncguard/fence.hpp>
#include <syncguard/key.hpp>
#include <syncguard/lock_id.hpp>
#include <syncguard/lock_info.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string_view>
#include <utility>

namespace syncguard {
inline namespace v0_1 {

namespace detail {
struct LeaseAccess;
// For assertions that fail when the function that contains them is used.
template <typename>
inline constexpr bool never = false;
}  // namespace detail

/// Why a lock was lost while its lease held it.
enum class LossReason {
  expired,        ///< its ttl passed, because it was not renewed or renewals failed
  max_hold,       ///< it was held for max_hold, after which it is not renewed
  removed,        ///< the store has no such lock anymore: it was broken, released by its id, or deleted
  store_lost,     ///< the store itself is gone, for example a deleted database file
  client_closed,  ///< its client was closed
};
/// "expired", "max-hold", "removed", "store-lost", "client-closed".
SYNCGUARD_EXPORT std::string_view to_string(LossReason reason) noexcept;

/// Owns a lock until it is released, detached, lost or destroyed. Movable, not copyable. One thread at a time may use
/// a lease, except for lost(), whose token may go anywhere.
///
/// A live lease keeps its client open until it is lost, released, detached or destroyed. Locks::close() closes the
/// client even if leases are live.
///
/// The destructor releases the lock and never throws. After a transient error it retries for up to the client's
/// dispose_timeout (on SQLite also while a disk hangs; see Locks). Then it reports the error to
/// Callbacks::on_release_error, and retries continue in the background until the lease's deadline or until the client
/// is closed. Once one destructor has timed out, other destructors of the same client do not wait until the store
/// replies again. The destructor starts the release and returns without waiting if dispose_timeout is 0, on a thread
/// that runs the client's executor, and always if the client runs on the caller's executor.
///
/// In a forked child a lease does nothing, because the parent holds the lock: it converts to false, remaining() is
/// zero, deadline() is BootClock's epoch, its destructor does nothing, and extend, release and detach throw
/// LockError(invalid_argument).
///
/// A moved-from or default-constructed lease is empty: id(), key(), fence(), expires_at() and deadline() must not be
/// called on it.
class SYNCGUARD_EXPORT Lease {
 public:
  Lease() noexcept = default;
  // NOLINTNEXTLINE(performance-move-constructor-init): a lease that was moved from still knows its client
  Lease(Lease&& other) noexcept : state_(std::move(other.state_)), client_(other.client_) {}
  /// Releases the lock that it held before, like the destructor.
  Lease& operator=(Lease&&) noexcept;
  ~Lease() {
    if (state_) dispose();
  }

  /// Whether this object represents a lock: not moved from, released or detached. Does not query the store; see
  /// remaining() and lost().
  explicit operator bool() const& noexcept;
  /// Does not compile: `if (locks.acquire("key"))` would release the lock before its body runs.
  template <typename Misuse = void>
  explicit operator bool() && {
    static_assert(detail::never<Misuse>,
                  "this lease is temporary, so its lock is released at once: write `auto lease = locks.acquire(key);`");
    return false;
  }

  [[nodiscard]] const Key& key() const noexcept;
  [[nodiscard]] const LockId& id() const noexcept;
  /// Send it to the store that the lock protects; that store rejects anything older than the newest fence it has seen.
  [[nodiscard]] Fence fence() const noexcept;
  /// By the clock of the backend's time authority. For display; to make decisions, use remaining().
  [[nodiscard]] Timestamp expires_at() const noexcept;

  /// How long the holder may still assume ownership. Counted from before the acquire request was sent, on the
  /// BootClock, which includes suspension, so it ends before the lock expires in the store. Zero once lost, released or
  /// detached.
  [[nodiscard]] std::chrono::milliseconds remaining() const noexcept;

  /// When remaining() reaches zero if the lock is not renewed. Valid in every process on this machine. Changes with
  /// every renewal; see Callbacks::on_extended. release() leaves it as it was.
  [[nodiscard]] BootClock::time_point deadline() const noexcept;

  /// Stopped once, when the holder can no longer assume ownership: an extend was rejected, remaining() reached zero, or
  /// the client is being closed (the lock is released only after this). Never stopped after release() or detach().
  /// Callbacks on it run on dedicated threads of the library and may block: a thread is added for each callback that
  /// blocks, so that no lease waits for the callback of another. A pause of the process or machine can outlast any
  /// deadline; only fences protect against that.
  [[nodiscard]] std::stop_token lost() const noexcept;

  /// Why the lock was lost, for logs and tests. Set before lost() is stopped, and when a release finds the lock gone.
  /// nullopt otherwise, and for an empty lease.
  [[nodiscard]] std::optional<LossReason> lost_reason() const noexcept;

  /// Replaces the remaining time by ttl, which later renewals also use. Returns false if the lock is no longer held by
  /// this lease; lost() is then stopped, too, shortly afterwards. Returns false for an empty or released lease. Waits
  /// for a pending renewal. May throw LockError; if the error is in doubt, the lease keeps the earlier of the two
  /// deadlines, and no later extend makes it last longer than this ttl, because the request may still take effect.
  [[nodiscard]] bool extend(std::chrono::milliseconds ttl, std::stop_token stop = {});

  /// Stops renewal, then releases the lock. Returns false if the lock was already gone, or if the lease is empty. May
  /// throw LockError. Even then, renewal stays stopped, remaining() is zero and lost() does not fire: stop working, and
  /// call release() again or leave it to the destructor or the ttl. After an error in doubt, false may also mean that
  /// the earlier release succeeded.
  bool release(std::stop_token stop = {});

  /// The same, but repeats the attempt after transient errors until the lock has expired in the store; then throws the
  /// last error. Logs a warning when it begins to repeat. Returns whether the lock was held until this call: true also
  /// if an attempt in doubt may have released it, or if it expired during the retries. False for an empty lease.
  bool release_with_retries(std::stop_token stop = {});

  /// Gives up the lease without releasing: the lock stays held until it expires or is released by its id. With
  /// Locks::adopt, another process can make a lease of it again. The lease must not be empty. The id of a lease that
  /// was released, or lost, names no lock anymore.
  LockId detach();

  /// The asynchronous counterparts, which take any Asio completion token and complete with (std::exception_ptr, bool):
  /// include `<syncguard/async.hpp>`. The lease must stay alive, and unmoved, until they complete. Completions run on
  /// the token's executor, by default the client's. A lease without a client uses Asio's system executor by default.
  template <typename CompletionToken>
  auto async_extend(std::chrono::milliseconds ttl, CompletionToken&& token) {
    return detail::start(client_.lock(), detail::ExtendLease{state_, ttl}, std::forward<CompletionToken>(token));
  }
  template <typename CompletionToken>
  auto async_release(CompletionToken&& token) {
    return detail::start(client_.lock(), detail::ReleaseLease{state_}, std::forward<CompletionToken>(token));
  }
  template <typename CompletionToken>
  auto async_release_with_retries(CompletionToken&& token) {
    return detail::start(client_.lock(), detail::ReleaseLeaseWithRetries{state_}, std::forward<CompletionToken>(token));
  }

 private:
  friend struct detail::LeaseAccess;
  explicit Lease(std::shared_ptr<detail::LeaseState> state) noexcept : state_(std::move(state)) {}
  void dispose() noexcept;

  std::shared_ptr<detail::LeaseState> state_;
  // Kept after a move: completions of a moved-from lease run on its former client's executor.
  std::weak_ptr<detail::Client> client_;
};

/// The result of Locks::try_acquire: a lease, or nothing if the key is held, or reserved for a waiter. Used like
/// std::optional<Lease>, and converts to it. Needs a name, because its destructor releases the lock: a temporary result
/// cannot be tested.
class [[nodiscard]] TryResult {
 public:
  TryResult() noexcept = default;
  TryResult(std::nullopt_t) noexcept {}                             // NOLINT(*-explicit-*): like std::optional
  TryResult(Lease lease) noexcept : lease_(std::move(lease)) {}     // NOLINT(*-explicit-*): like std::optional
  operator std::optional<Lease>() && { return std::move(lease_); }  // NOLINT(*-explicit-*): see above

  /// Whether there is a lease. Stays true if that is lost or released.
  [[nodiscard]] bool has_value() const& noexcept { return lease_.has_value(); }
  explicit operator bool() const& noexcept { return has_value(); }

  /// The lease, which must exist. value() throws std::bad_optional_access if it does not.
  [[nodiscard]] Lease& operator*() & noexcept { return *lease_; }
  [[nodiscard]] const Lease& operator*() const& noexcept { return *lease_; }
  [[nodiscard]] Lease operator*() && noexcept { return *std::move(lease_); }
  [[nodiscard]] Lease* operator->() noexcept { return &*lease_; }
  [[nodiscard]] const Lease* operator->() const noexcept { return &*lease_; }
  [[nodiscard]] Lease& value() & { return lease_.value(); }
  [[nodiscard]] const Lease& value() const& { return lease_.value(); }
  [[nodiscard]] Lease value() && { return std::move(lease_).value(); }

  /// Releases the lock, like the destructor.
  void reset() noexcept { lease_.reset(); }

  /// These do not compile: `if (locks.try_acquire("key"))` would release the lock before its body runs.
  template <typename Misuse = void>
  explicit operator bool() && {
    return std::move(*this).template has_value<Misuse>();
  }
  template <typename Misuse = void>
  bool has_value() && {
    static_assert(detail::never<Misuse>,
                  "this lease is temporary, so its lock is released at once: write `if (auto lease = "
                  "locks.try_acquire(key))`");
    return false;
  }

 private:
  std::optional<Lease> lease_;
};

}  // namespace v0_1
}  // namespace syncguard
