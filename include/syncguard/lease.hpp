// A lock that is held.
#pragma once

#include <syncguard/export.hpp>
#include <syncguard/fence.hpp>
#include <syncguard/key.hpp>
#include <syncguard/lock_id.hpp>
#include <syncguard/lock_info.hpp>

#include <chrono>
#include <memory>
#include <stop_token>

namespace syncguard {

namespace detail {
class LeaseState;
struct LeaseAccess;
}  // namespace detail

// Owns a lock until it is released, detached, lost or destroyed. Movable, not copyable. One thread at a time may use
// a lease, except for lost(), whose token may go anywhere.
//
// The destructor releases. It never throws, waits at most the smaller of the client's operation_timeout and
// dispose_timeout (on SQLite also for a disk that hangs; see Locks), and reports failures to
// Callbacks::on_release_error. On a thread that runs the client's executor, and always with an executor of the
// caller's, it hands the release over and returns at once. In a forked child a lease is inert: the lock is the
// parent's.
//
// A lease that was moved from or default-constructed holds nothing: id(), key(), fence(), expires_at() and deadline()
// must not be asked then.
class SYNCGUARD_EXPORT Lease {
 public:
  Lease() noexcept;
  Lease(Lease&&) noexcept;
  // Releases what it held before, as the destructor would.
  Lease& operator=(Lease&&) noexcept;
  ~Lease();

  // Whether this object stands for a lock: neither moved from, nor released, nor detached. Says nothing about the
  // store; see remaining() and lost().
  explicit operator bool() const noexcept;

  [[nodiscard]] const Key& key() const noexcept;
  [[nodiscard]] const LockId& id() const noexcept;
  // For the store that the lock protects: let it refuse anything older than the newest it has seen.
  [[nodiscard]] Fence fence() const noexcept;
  // By the clock of the backend's time authority. For display; to decide, use remaining().
  [[nodiscard]] Timestamp expires_at() const noexcept;

  // How long ownership may still be assumed: counted from before the granting request was sent, on a clock that
  // includes suspension, so it ends before the store's own count. Zero once lost, released or detached.
  [[nodiscard]] std::chrono::milliseconds remaining() const noexcept;

  // When remaining() runs out, as CLOCK_BOOTTIME counts: for another process of this machine that must know it. Moves
  // with every renewal; see Callbacks::on_extended.
  [[nodiscard]] std::chrono::nanoseconds deadline() const noexcept;

  // Stopped once, when ownership can no longer be assumed: an extend was refused, remaining() ran out, or the client
  // was closed. Stays silent after release() or detach(). Callbacks on it run on a thread that renews no leases. A
  // pause of the process or of its machine can outlast any deadline; only fences protect then.
  [[nodiscard]] std::stop_token lost() const noexcept;

  // Replaces what is left by ttl, which also becomes the ttl of later renewals. False if the lock is no longer ours:
  // lost() is then stopped too, a moment later. False without more for a lease that holds nothing or was released.
  // Waits for a renewal that is under way. May throw LockError; the lease then keeps the earlier of both deadlines, if
  // the error is in doubt.
  [[nodiscard]] bool extend(std::chrono::milliseconds ttl, std::stop_token stop = {});

  // Stops renewal, then releases. False if the lock was already gone, or for a lease that holds nothing. May throw
  // LockError. Then, too, renewal stays stopped, remaining() is zero and lost() silent: do not go on working; call it
  // again, or leave it to the destructor or the ttl. After an error in doubt, false may also mean that the release
  // before had its effect.
  bool release(std::stop_token stop = {});

  // Gives the lease up without releasing: the lock lives on until its ttl is over, and belongs to whoever has its id.
  // The lease must hold a lock.
  LockId detach();

  // The asynchronous twins, which take any Asio completion token: include <syncguard/async.hpp>. The lease must stay
  // alive, and unmoved, until they complete.
  template <typename CompletionToken>
  auto async_extend(std::chrono::milliseconds ttl, CompletionToken&& token);
  template <typename CompletionToken>
  auto async_release(CompletionToken&& token);

 private:
  friend struct detail::LeaseAccess;
  explicit Lease(std::shared_ptr<detail::LeaseState> state) noexcept;

  std::shared_ptr<detail::LeaseState> state_;
};

}  // namespace syncguard
