// The address of the Redis server, and the time of the next attempt to connect.
#pragma once

#include "backends/redis/discovery.hpp"
#include "backends/redis/stream.hpp"

#include <syncguard/redis.hpp>

#include <chrono>
#include <optional>
#include <vector>

namespace syncguard::redis {

// The configured addresses of servers or Sentinels. At least one.
std::vector<Address> addresses_of(const RedisOptions& options);

// No I/O, and no lock: Connection's mutex guards it.
class ServerAddress {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ServerAddress(const RedisOptions& options);

  // Starts an attempt to connect: to the address of move_to(), if any, or to a server that has to be found.
  [[nodiscard]] Discovery discover() const;
  // The attempt succeeded. The next one begins with the address that led to this server.
  void discovered(const Discovery& discovery);

  // A redirection by a cluster, or by another connection of this client.
  void move_to(Address address) { target_ = std::move(address); }
  // Undoes move_to(): that server may be gone.
  void reset() noexcept { target_.reset(); }
  // The connection was lost. Only Sentinels know whether the server is still the master.
  void lost() noexcept;

  // An attempt failed. The pause before the next attempt grows with each failure in a row.
  void failed(Clock::time_point now);
  // The server replied and can be used: resets the backoff.
  void answered() noexcept { failures_ = 0; }
  // The server replied but cannot be used: counts as a failed attempt after the given number of failures.
  void refused(Clock::time_point now, int failures_before);
  [[nodiscard]] int failures() const noexcept { return failures_; }
  [[nodiscard]] Clock::time_point next_attempt() const noexcept { return next_attempt_; }

 private:
  const Discovery::Source source_;
  const std::vector<Address> configured_;
  std::optional<Address> target_;
  // The configured or learned address that led to the last server.
  std::optional<Address> origin_;
  std::vector<Address> learned_;
  int failures_ = 0;
  Clock::time_point next_attempt_{};
};

}  // namespace syncguard::redis
