/// \file
/// A place in the queue of a key, for backends whose stores keep one.
#pragma once

#include <syncguard/call_limits.hpp>
#include <syncguard/detail/asio_version.hpp>
#include <syncguard/export.hpp>

#include <asio/awaitable.hpp>

#include <chrono>
#include <optional>

namespace syncguard {
inline namespace v0_1 {

/// A waiter's place in the queue of a key, among the first waiters of all clients. The destructor only forgets the
/// place locally; other clients then skip it as dead.
class SYNCGUARD_EXPORT WaitTicket {
 public:
  WaitTicket() = default;
  WaitTicket(const WaitTicket&) = delete;
  WaitTicket& operator=(const WaitTicket&) = delete;
  virtual ~WaitTicket();

  /// Makes sure that the place still exists, and takes a new one at the end of the queue if it does not (because a turn
  /// lapsed, or the store lost its queue). The place is active when this returns, as after join().
  virtual asio::awaitable<void> rejoin(const CallLimits& limits) = 0;
  /// Gives up the place. A turn that was already given is passed on.
  virtual asio::awaitable<void> leave(const CallLimits& limits) = 0;
  /// How long the key stays held by, or reserved for, another client, if the atomic step of join() or rejoin() saw
  /// that. The caller then waits without another attempt. nullopt (the default) if the step did not look, or if an
  /// attempt may succeed.
  [[nodiscard]] virtual std::optional<std::chrono::milliseconds> free_in() const noexcept;
  /// Whether wake is also called after the holder's lock has expired, and after a turn of another waiter was not used.
  /// If not (the default), the client attempts at that time by itself, like all other waiting clients.
  [[nodiscard]] virtual bool notices_expiry() const noexcept;
};

}  // namespace v0_1
}  // namespace syncguard
