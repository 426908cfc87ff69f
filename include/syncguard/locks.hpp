// The client: the one thing most programs need.
#pragma once

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

class Backend;

namespace detail {
class ClientHandle;
struct LocksAccess;
}  // namespace detail

// A client of one store. Thread-safe and cheap to copy; copies share everything.
//
// Every operation may throw LockError, takes a stop_token that ends it within 50 ms with LockError(aborted), and fails
// with LockError(network_timeout) when it exceeds the operation_timeout. One exception: a blocking call on SQLite that
// is inside the disk returns when the disk does (docs/adr/0019-blocking-callers-work-themselves.md). Bad input is
// LockError(invalid_argument) before any I/O. Blocking calls are refused with LockError(invalid_argument) on a thread
// that runs the client's executor, and always on a client with an executor of the caller's: there they would deadlock,
// and the asynchronous twin is right.
//
// Destroying the last copy closes the client; see close().
class SYNCGUARD_EXPORT Locks {
 public:
  // Takes a backend made by hand, and an I/O thread of its own. Most programs call open().
  explicit Locks(std::unique_ptr<Backend> backend, ClientOptions options = {});

  // One attempt. Nothing if somebody holds the key, or if it is about to go to somebody who waits.
  [[nodiscard]] std::optional<Lease> try_acquire(const Key& key, TryOptions options = {}, std::stop_token stop = {});

  // Waits for the lock, first come first served among the waiters of this client, and of all clients where the store
  // keeps a queue. Throws LockError(acquisition_timeout) if it could not be had in time, or max_retries are used up.
  // Transient errors are retried meanwhile.
  [[nodiscard]] Lease acquire(const Key& key, AcquireOptions options = {}, std::stop_token stop = {});

  // Runs function(lease), or function(), while holding the lock, and returns what it returns. Releases on every way
  // out; an exception of function's wins over one of the release, which goes to Callbacks::on_release_error.
  template <typename Function>
  auto with_lock(const Key& key, AcquireOptions options, Function&& function, std::stop_token stop = {}) {
    Lease lease = acquire(key, options, std::move(stop));
    if constexpr (std::is_invocable_v<Function, Lease&>) {
      return std::invoke(std::forward<Function>(function), lease);
    } else {
      return std::invoke(std::forward<Function>(function));
    }
  }

  // By id, from anywhere; safe to call without owning anything. False, or nothing, if the lock is not there any more.
  bool release(const LockId& id, std::stop_token stop = {});
  // Replaces what is left by ttl and returns the new expiry. Not an ownership test: a holder asks Lease::remaining()
  // and lost(), a person owns(), and a write needs the fence.
  std::optional<Timestamp> extend(const LockId& id, std::chrono::milliseconds ttl, std::stop_token stop = {});

  // For display, diagnosis and hints; never a guard for what follows, since the answer may be old when it arrives.
  [[nodiscard]] bool is_locked(const Key& key, std::stop_token stop = {});
  // Nothing for both expired and absent.
  [[nodiscard]] std::optional<LockInfo> lookup(const Key& key, std::stop_token stop = {});
  [[nodiscard]] std::optional<LockInfo> lookup(const LockId& id, std::stop_token stop = {});
  // lookup, by the names that other SyncGuards give it.
  [[nodiscard]] std::optional<LockInfo> get_by_key(const Key& key, std::stop_token stop = {});
  [[nodiscard]] std::optional<LockInfo> get_by_id(const LockId& id, std::stop_token stop = {});
  // Whether that very lock is live.
  [[nodiscard]] bool owns(const LockId& id, std::stop_token stop = {});
  // With raw identifiers, for debugging: never log them.
  [[nodiscard]] std::optional<LockRecord> get_by_key_raw(const Key& key, std::stop_token stop = {});
  [[nodiscard]] std::optional<LockRecord> get_by_id_raw(const LockId& id, std::stop_token stop = {});

  // Whether the store is fit for locks, check by check, and how to mend it if not. One that cannot be reached, or that
  // refuses, is a finding and no error. Changes nothing that others can see. For deployments and people, not for every
  // start of a program: it takes several round trips, all of them within one operation_timeout.
  [[nodiscard]] std::vector<Finding> diagnose(std::stop_token stop = {});
  // Creates what the store needs before it can hold locks (tables, a file), and says in words what it made, or that
  // nothing is needed. May be run again, and by many processes at once.
  std::string setup(std::stop_token stop = {});

  // How far this host's clock is ahead of the store's (behind: negative), as the latest answer shows it. Nothing where
  // the store's own clock decides about expiry (every backend but Firestore), and before the first answer.
  [[nodiscard]] std::optional<std::chrono::milliseconds> clock_skew() const noexcept;

  // A copy that calls other callbacks. Shares everything else.
  [[nodiscard]] Locks with(Callbacks callbacks) const;

  // Ends operations and waiters with LockError(aborted), releases live leases as far as that works within
  // dispose_timeout, then stops their lost(). Later operations are LockError(aborted). May be called again, from any
  // thread; on one that runs the client's executor it only begins the closing.
  void close();

  // The asynchronous twins, which take any Asio completion token and complete with (std::exception_ptr, result):
  // include <syncguard/async.hpp>. The token's cancellation slot takes the stop token's place. Completions run on the
  // token's executor, by default the client's: there they must not block, since renewals and time-outs run there too,
  // and must not throw.
  template <typename CompletionToken>
  auto async_try_acquire(Key key, TryOptions options, CompletionToken&& token) const;
  template <typename CompletionToken>
  auto async_acquire(Key key, AcquireOptions options, CompletionToken&& token) const;
  // function(lease) or function() returns an awaitable.
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
  auto async_diagnose(CompletionToken&& token) const;
  template <typename CompletionToken>
  auto async_setup(CompletionToken&& token) const;
  template <typename CompletionToken>
  auto async_close(CompletionToken&& token) const;

 private:
  friend struct detail::LocksAccess;
  Locks(std::shared_ptr<detail::ClientHandle> handle, std::shared_ptr<const Callbacks> callbacks);

  std::shared_ptr<detail::ClientHandle> handle_;
  std::shared_ptr<const Callbacks> callbacks_;
};

// Opens a client by URL: "memory:", and every scheme that was built in or registered. Does not connect; the first
// operation does. The option operation_timeout works on every backend. Throws LockError(invalid_argument) naming an
// unknown scheme, option or value and what is known; of PostgreSQL's options libpq judges those that are not ours, and
// names none.
[[nodiscard]] SYNCGUARD_EXPORT Locks open(std::string_view url, ClientOptions options = {});

}  // namespace syncguard
