// What a backend is: five operations that each make one atomic attempt and say what is stored, and, where it can, a
// place in a key's queue. Everything else (waiting, renewing, releasing, sanitising, telemetry, blocking) is written
// once, above, and works for every backend.
//
// Rules for implementations:
// - One attempt per call, no retries. Contention and absence are returned; anything else throws LockError. Any
//   other exception becomes LockError(internal), in doubt.
// - Coroutines start on the caller's thread and go on wherever their I/O completes: guard shared state.
//   `co_await asio::this_coro::executor` gives an executor for sockets and timers.
// - Arguments passed by reference outlive the returned awaitable.
// - A call ends by its deadline with network_timeout, and within 50 ms of a stop request with aborted; both in doubt
//   if the request may have been sent.
// - A lock is live while expires_at > now - 1000 ms, with now read inside the atomic step. expires_at and remaining are
//   computed there, too.
// The suite in syncguard/testing/contract_suite.hpp checks what can be checked without breaking your server.
#pragma once

#include <syncguard/diagnosis.hpp>
#include <syncguard/error.hpp>
#include <syncguard/export.hpp>
#include <syncguard/lock_info.hpp>

#include <asio/awaitable.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <variant>
#include <vector>

namespace syncguard {

// Whose clock decides whether a lock has expired.
enum class TimeAuthority { server, client };

struct Capabilities {
  std::string name;
  // Whether acquire hands out fences. Every backend that comes with SyncGuard does.
  bool fencing = true;
  TimeAuthority time_authority = TimeAuthority::server;
  // How long one operation may take, connecting included, unless the client's options say otherwise.
  std::chrono::milliseconds operation_timeout{2000};
};

// What ends one operation early.
struct CallLimits {
  std::stop_token stop;
  std::chrono::steady_clock::time_point deadline;
};

struct AcquireRequest {
  Key key;
  LockId lock_id;
  std::chrono::milliseconds ttl;
  // Whether the caller tries again when it is refused. Then it may be refused for a moment in favour of others.
  bool can_wait = false;
};

struct Granted {
  Fence fence;
  Timestamp expires_at;
  // What was left of the ttl in the atomic step; not positive once a repeated acquire finds its lock in the
  // tolerance after its expiry.
  std::chrono::milliseconds remaining;
};

struct Contended {
  // After this long the key can be had unless its holder renews it.
  std::chrono::milliseconds free_in;
};

struct Released {};

struct Extended {
  Timestamp expires_at;
  std::chrono::milliseconds remaining;
};

// Why a lock id could not be released or extended. A lock that belongs to another id is not_found.
enum class Missing { expired, not_found };

using AcquireReply = std::variant<Granted, Contended>;
using ReleaseReply = std::variant<Released, Missing>;
using ExtendReply = std::variant<Extended, Missing>;

// A waiter's place in the queue of a key, among the heads of all clients. Destroying it forgets the place locally and
// tells nobody: the others skip it as dead.
class SYNCGUARD_EXPORT WaitTicket {
 public:
  WaitTicket() = default;
  WaitTicket(const WaitTicket&) = delete;
  WaitTicket& operator=(const WaitTicket&) = delete;
  virtual ~WaitTicket();

  // Makes sure the place is still there, and takes a new one at the end if it is not (a turn that came too late, a
  // store that forgot its queue). As in force as after join.
  virtual asio::awaitable<void> rejoin(const CallLimits& limits) = 0;
  // Gives the place up; a turn that had already come is passed on.
  virtual asio::awaitable<void> leave(const CallLimits& limits) = 0;
};

class SYNCGUARD_EXPORT Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend();

  [[nodiscard]] virtual Capabilities capabilities() const = 0;

  // How far this host's clock is ahead of the store's (behind: negative), as the latest answer shows it. Nothing where
  // the store's own clock decides, which is the default, and before the first answer.
  [[nodiscard]] virtual std::optional<std::chrono::milliseconds> clock_skew() const noexcept;

  // Takes the lock if nobody holds it. Idempotent in its lock id: sent again while that lock is live, it gives the same
  // fence and expiry. Removes lock_id from the key's queue when it grants.
  virtual asio::awaitable<AcquireReply> acquire(const AcquireRequest& request, const CallLimits& limits) = 0;
  // Removes the lock if this very one is live, and gives the oldest waiter of its key, where there is a queue, its
  // turn.
  virtual asio::awaitable<ReleaseReply> release(const LockId& id, const CallLimits& limits) = 0;
  // Replaces what is left of the ttl if this very lock is live. Never revives.
  virtual asio::awaitable<ExtendReply> extend(const LockId& id, std::chrono::milliseconds ttl,
                                              const CallLimits& limits) = 0;
  // Whether the key has a live lock. Changes nothing, unless the backend was told to clean up.
  virtual asio::awaitable<bool> is_locked(const Key& key, const CallLimits& limits) = 0;
  // The live lock, or nothing for both absent and expired. Read-only.
  virtual asio::awaitable<std::optional<LockRecord>> lookup(const Key& key, const CallLimits& limits) = 0;
  // The same by id: nothing, too, if the key belongs to another lock by now.
  virtual asio::awaitable<std::optional<LockRecord>> lookup(const LockId& id, const CallLimits& limits) = 0;

  // Makes sure that an acquire which ended in doubt leaves no lock behind. Must not overtake that acquire if it is
  // still unanswered. By default a release, which is right where requests of one lock id cannot overtake each other.
  virtual asio::awaitable<void> retract(const AcquireRequest& request, const CallLimits& limits);

  // Joins the key's queue. In force on the store when it returns: from then on, wake is called (from any thread,
  // possibly more than once, possibly in vain) when it may be this waiter's turn. Nothing where the backend cannot
  // tell; the client then polls.
  virtual asio::awaitable<std::unique_ptr<WaitTicket>> join(const Key& key, const LockId& waiter,
                                                            std::function<void()> wake, const CallLimits& limits);

  // Looks at the store and says whether it is fit for locks: one finding per check, in the order in which a person
  // would mend them. Changes nothing that others can see. A store that cannot be reached in time, or that refuses, is a
  // finding; only a stop request throws. By default one finding: that there is nothing to check.
  virtual asio::awaitable<std::vector<Finding>> diagnose(const CallLimits& limits);
  // Creates what the store needs before it can hold locks, and says in words what it made, or that nothing is needed.
  // May be run again, and by many processes at once. By default nothing is needed.
  virtual asio::awaitable<std::string> setup(const CallLimits& limits);

  // Called once, after the last operation has ended. Gives connections back.
  virtual asio::awaitable<void> close(const CallLimits& limits);
};

}  // namespace syncguard
