// What a Lease owns: the machine that knows the rules, and the requests that carry them out.
#pragma once

#include "async/wake_up.hpp"
#include "locks/lease_machine.hpp"

#include <syncguard/backend.hpp>
#include <syncguard/client_options.hpp>
#include <syncguard/lock_info.hpp>

#include <asio/awaitable.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <vector>

namespace syncguard::detail {

class Client;

// Thread-safe: the application's calls, renewals and the closing of the client may meet here. One request is in flight
// at a time; who comes meanwhile waits for its turn.
class LeaseState : public std::enable_shared_from_this<LeaseState> {
 public:
  struct Grant {
    Granted reply;
    LeaseMachine::Time sent_at;
    std::chrono::milliseconds ttl;
    LeaseMachine::Renewal renewal;
  };

  LeaseState(std::shared_ptr<Client> client, std::shared_ptr<const Callbacks> callbacks, Key key, const LockId& id,
             const Grant& grant);

  // Starts to watch the deadline.
  void start();

  [[nodiscard]] const std::shared_ptr<Client>& client() const noexcept { return client_; }
  [[nodiscard]] const Key& key() const noexcept { return key_; }
  [[nodiscard]] const LockId& id() const noexcept { return id_; }
  [[nodiscard]] Fence fence() const noexcept { return fence_; }
  [[nodiscard]] Timestamp expires_at() const noexcept;
  [[nodiscard]] std::chrono::milliseconds remaining() const noexcept;
  // On the boot clock.
  [[nodiscard]] std::chrono::nanoseconds deadline() const noexcept;
  [[nodiscard]] bool is_over() const noexcept;
  [[nodiscard]] std::stop_token lost() const noexcept { return lost_.get_token(); }

  // Called by the scheduler.
  void tick();

  asio::awaitable<bool> extend(std::chrono::milliseconds ttl, std::stop_token stop);
  asio::awaitable<bool> release(std::stop_token stop);
  // Releases as the destructor of a Lease does; what went wrong, if anything did.
  asio::awaitable<std::optional<LockError>> dispose();
  void detach();
  // The client is being closed: releases as far as that works.
  asio::awaitable<void> release_for_close(const CallLimits& limits);
  // The client was closed: a lease that was still held is lost.
  void client_closed();

  // Tells on_release_error, which must not throw into anything of ours.
  void report(const LockError& error) const noexcept;

  // Owned by LeaseScheduler.
  std::size_t heap_place = static_cast<std::size_t>(-1);

 private:
  // The right to have the one request in flight.
  class Turn;
  asio::awaitable<void> take_turn(const CallLimits& limits);
  void give_turn_back() noexcept;

  static asio::awaitable<void> renew(std::shared_ptr<LeaseState> self, std::stop_token stop);
  // With the turn held.
  asio::awaitable<bool> send_extend(std::chrono::milliseconds ttl, const CallLimits& limits);
  asio::awaitable<bool> send_release(const CallLimits& limits);

  [[nodiscard]] bool was_released_for_close() const noexcept;
  [[nodiscard]] bool may_have_been_released() const noexcept;
  void stop_renewing();
  void end();
  void reschedule();  // with mutex_ held
  void fire_lost();

  const std::shared_ptr<Client> client_;
  const std::shared_ptr<const Callbacks> callbacks_;
  const Key key_;
  const LockId id_;
  const Fence fence_;
  const std::stop_source lost_;

  mutable std::mutex mutex_;
  Timestamp expires_at_;
  LeaseMachine machine_;
  bool turn_taken_ = false;
  bool released_for_close_ = false;  // though still to be called lost
  bool release_in_doubt_ = false;    // if it is gone, then perhaps by our own request
  std::vector<std::shared_ptr<async::WakeUp>> waiting_for_turn_;
  // Of the renewal that is under way.
  std::stop_source renewal_stop_{std::nostopstate};
};

}  // namespace syncguard::detail
