// Finds the server to connect to: one of the configured servers, or the master that the Sentinels name. No I/O.
#pragma once

#include "backends/redis/protocol.hpp"
#include "backends/redis/stream.hpp"

#include <syncguard/error.hpp>

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace syncguard::redis {

// The address in a server's reply; nullopt if the host is missing or the port is invalid.
std::optional<Address> address_of(std::string_view host, std::string_view port);

// The answer of one Sentinel.
struct SentinelAnswer {
  Address master;
  // Other Sentinels of the same master. May be incomplete.
  std::vector<Address> others;
};
// Reads the reply to SENTINEL GET-MASTER-ADDR-BY-NAME. Throws LockError for an error, an unknown master or an invalid
// reply.
Address master_of(const Reply& reply);
// Reads the reply to SENTINEL SENTINELS. Leaves out entries without an address, and those beyond a limit.
std::vector<Address> sentinels_of(const Reply& reply);

// The state machine of one attempt to connect. The driver does what next() says, reports the result, and asks again.
//
//   action        event             next action
//   ------------  ----------------  -----------------------------------------------------------------
//   ask_sentinel  answered          connect; if that address already failed, as after failed
//                 failed            ask_sentinel with the next address, or give_up after the last one
//   connect       connected         (the attempt is over)
//                 failed            the first action with the next address, or give_up after the last one
//
// Each address is used once: a Sentinel that is dead, silent or wrong delays the attempt, but does not prevent it.
class Discovery {
 public:
  enum class Source { servers, sentinels };
  enum class Action { ask_sentinel, connect, give_up };
  struct Step {
    Action action;
    Address address{};
  };

  // The addresses, in the order in which they are used. There must be at least one.
  Discovery(Source source, std::vector<Address> addresses);

  [[nodiscard]] Source source() const noexcept { return source_; }
  [[nodiscard]] Step next() const;
  void answered(SentinelAnswer answer);
  void failed(const LockError& error);

  // After give_up: the error of the last server that was named, or, if none was named, the error of the Sentinels.
  [[nodiscard]] const LockError& error() const { return connect_error_ ? *connect_error_ : *sentinel_error_; }
  // The configured or learned address that led to the server to connect to.
  [[nodiscard]] const Address& origin() const { return addresses_[position_]; }
  // The other Sentinels that the last answer named.
  [[nodiscard]] const std::vector<Address>& learned() const noexcept { return learned_; }

 private:
  Source source_;
  std::vector<Address> addresses_;
  std::size_t position_ = 0;
  std::optional<Address> master_{};
  std::vector<Address> tried_{};
  std::vector<Address> learned_{};
  std::optional<LockError> connect_error_{};
  std::optional<LockError> sentinel_error_{};
};

}  // namespace syncguard::redis
