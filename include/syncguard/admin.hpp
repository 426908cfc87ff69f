/// \file
/// What operators and diagnosis do with a store of locks.
#pragma once

#include <syncguard/admin_types.hpp>
#include <syncguard/detail/operations.hpp>
#include <syncguard/diagnosis.hpp>
#include <syncguard/export.hpp>
#include <syncguard/fence.hpp>
#include <syncguard/key.hpp>
#include <syncguard/lock_id.hpp>
#include <syncguard/lock_info.hpp>
#include <syncguard/locks.hpp>

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace syncguard {
inline namespace v0_1 {

/// A view of a client, from Locks::admin(): for operators, dashboards and tests. A program that holds locks needs none
/// of this, and should not: everything here reads or changes the locks of others, and may be outdated when it arrives.
///
/// Cheap to copy. Keeps the client open like a copy of Locks. Errors, stop tokens, threads and the asynchronous
/// counterparts are as in Locks.
class SYNCGUARD_EXPORT Admin {
 public:
  /// A page of the live locks, in no particular order. Reads a bounded part of the store: call it again with the cursor
  /// of the page until that is empty. Every lock that is live from the first page to the last appears; on Redis it may
  /// appear twice. Throws LockError(invalid_argument) if the backend does not support this, and for a cursor that is
  /// not from a page.
  [[nodiscard]] LockPage list(ListOptions options = {}, std::stop_token stop = {}) const;
  template <typename CompletionToken>
  auto async_list(ListOptions options, CompletionToken&& token) const {
    return detail::start(locks_.client_, detail::List(options), std::forward<CompletionToken>(token));
  }

  /// The state of a key: its holders, the number of waiters, its fence counter, and the store's time.
  [[nodiscard]] KeyState inspect(const Key& key, std::stop_token stop = {}) const;
  template <typename CompletionToken>
  auto async_inspect(Key key, CompletionToken&& token) const {
    return detail::start(locks_.client_, detail::Inspect{std::move(key)}, std::forward<CompletionToken>(token));
  }

  /// Calls callback with the state of the key, then again after every change of its holders or their fences, and when
  /// it becomes free or locked. Not when a lock is extended. States that change back, or change again while callback
  /// runs, are left out: only the latest one counts. Transient errors are retried forever. Returns when a stop is
  /// requested; throws other errors, and those of callback, which runs on this thread.
  void watch(const Key& key, WatchOptions options, const std::function<void(const KeyState&)>& callback,
             std::stop_token stop = {}) const;
  /// callback(state) runs on the token's executor. Completes with (std::exception_ptr), never without an error: with
  /// LockError(aborted) if it was canceled.
  template <typename Function, typename CompletionToken>
  auto async_watch(Key key, WatchOptions options, Function&& callback, CompletionToken&& token) const {
    return (void)detail::WithAsyncHeader<CompletionToken>(),
           detail::Asynchronous<CompletionToken>::watch(locks_.client_, std::move(key), options,
                                                        std::forward<Function>(callback),
                                                        std::forward<CompletionToken>(token));
  }

  /// Releases the lock of another holder: one that no longer works, and whose ttl is too long to wait. Only if the lock
  /// still has this fence. Returns false if it has not, or if the key is free. Logs a warning. The holder is not
  /// notified: it finds out at its next renewal, and only checked fences stop it until then.
  bool break_lock(const Key& key, Fence fence, std::stop_token stop = {}) const;
  template <typename CompletionToken>
  auto async_break_lock(Key key, Fence fence, CompletionToken&& token) const {
    return detail::start(locks_.client_, detail::BreakLock{std::move(key), fence},
                         std::forward<CompletionToken>(token));
  }

  /// Raises the key's fence counter, KeyState::fence, to at least this value and returns the new value; never lowers
  /// it. After a restore of the store, raise it to the newest fence that a protected resource has seen. Throws
  /// LockError(invalid_argument) from Fence::refuse_above on, where the key could not be locked anymore.
  Fence raise_fence(const Key& key, Fence fence, std::stop_token stop = {}) const;
  template <typename CompletionToken>
  auto async_raise_fence(Key key, Fence fence, CompletionToken&& token) const {
    return detail::start(locks_.client_, detail::RaiseFence{std::move(key), fence},
                         std::forward<CompletionToken>(token));
  }

  /// Removes locks that expired long ago, at most a limited number per call (see CleanupReply::more), or counts all of
  /// them. Never removes a fence counter. Only saves space: an acquire replaces expired locks.
  CleanupReply clean_up(CleanupRequest request = {}, std::stop_token stop = {}) const;
  template <typename CompletionToken>
  auto async_clean_up(CleanupRequest request, CompletionToken&& token) const {
    return detail::start(locks_.client_, detail::CleanUp{request}, std::forward<CompletionToken>(token));
  }

  /// Checks whether the store is fit for locks, and says how to fix it if not. A store that is unreachable or rejects
  /// the client is a finding, not an error. Changes nothing that other clients can see. For deployments and diagnosis,
  /// not for every start of a program: it takes several round trips, all within one operation_timeout.
  [[nodiscard]] std::vector<Finding> diagnose(std::stop_token stop = {}) const;
  template <typename CompletionToken>
  auto async_diagnose(CompletionToken&& token) const {
    return detail::start(locks_.client_, detail::Diagnose{}, std::forward<CompletionToken>(token));
  }

  /// Creates what the store needs before it can hold locks (tables, a file). Returns a message that says what was
  /// created, or that nothing was needed. Safe to repeat and to run concurrently.
  std::string setup(std::stop_token stop = {}) const;
  template <typename CompletionToken>
  auto async_setup(CompletionToken&& token) const {
    return detail::start(locks_.client_, detail::Setup{}, std::forward<CompletionToken>(token));
  }
  /// The SQL with which an administrator can create the same instead of setup(), in a store that has nothing yet. Safe
  /// to repeat. Empty if the store needs no setup. Without I/O.
  [[nodiscard]] std::string setup_script() const;

  /// How far this host's clock is ahead of the store's (negative: behind): the part that is certain, because network
  /// delays cannot explain it. nullopt if the store's own clock decides about expiry (every backend except Firestore),
  /// and before the first reply. Without I/O.
  [[nodiscard]] std::optional<std::chrono::milliseconds> clock_skew() const noexcept;

  /// \name Under the names that other SyncGuard libraries use
  /// \{

  /// As Locks::lookup.
  [[nodiscard]] std::optional<LockInfo> get_by_key(const Key& key, std::stop_token stop = {}) const;
  template <typename CompletionToken>
  auto async_get_by_key(Key key, CompletionToken&& token) const {
    return locks_.async_lookup(std::move(key), std::forward<CompletionToken>(token));
  }
  [[nodiscard]] std::optional<LockInfo> get_by_id(const LockId& id, std::stop_token stop = {}) const;
  template <typename CompletionToken>
  auto async_get_by_id(LockId id, CompletionToken&& token) const {
    return locks_.async_lookup(id, std::forward<CompletionToken>(token));
  }
  /// Whether the lock with this id is live.
  [[nodiscard]] bool owns(const LockId& id, std::stop_token stop = {}) const;
  template <typename CompletionToken>
  auto async_owns(LockId id, CompletionToken&& token) const {
    return detail::start(locks_.client_, detail::Owns{id}, std::forward<CompletionToken>(token));
  }
  /// With raw identifiers, for debugging: never log them.
  [[nodiscard]] std::optional<LockRecord> get_by_key_raw(const Key& key, std::stop_token stop = {}) const;
  template <typename CompletionToken>
  auto async_get_by_key_raw(Key key, CompletionToken&& token) const {
    return detail::start(locks_.client_, detail::LookupRaw<Key>{std::move(key)}, std::forward<CompletionToken>(token));
  }
  [[nodiscard]] std::optional<LockRecord> get_by_id_raw(const LockId& id, std::stop_token stop = {}) const;
  template <typename CompletionToken>
  auto async_get_by_id_raw(LockId id, CompletionToken&& token) const {
    return detail::start(locks_.client_, detail::LookupRaw<LockId>{id}, std::forward<CompletionToken>(token));
  }

  /// \}

 private:
  friend class Locks;
  explicit Admin(Locks locks) noexcept : locks_(std::move(locks)) {}

  Locks locks_;
};

}  // namespace v0_1
}  // namespace syncguard
