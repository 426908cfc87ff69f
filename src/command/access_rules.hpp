// Which requests `serve` answers: where it listens, which Host headers it accepts, the token, and how many requests.
// Pure.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace syncguard::command {

// An address to listen on.
struct ListenAddress {
  // An IPv4 or IPv6 address, without brackets.
  std::string host;
  std::uint16_t port = 0;

  // Reads 127.0.0.1:9465, [::1]:9465 or localhost:9465. Throws LockError(invalid_argument): other names are not
  // resolved.
  static ListenAddress parse(std::string_view text);
  [[nodiscard]] bool is_ipv6() const { return host.find(':') != std::string::npos; }
  // Whether only processes of this host can connect.
  [[nodiscard]] bool is_loopback() const;
  // HOST:PORT, with brackets around an IPv6 address.
  [[nodiscard]] std::string str() const;
};

// Whether a Host header may be answered. A page of an attacker can make a browser send requests to this server by
// changing the address of the attacker's own name (DNS rebinding). Such a request has that name in its Host header, so
// IP addresses, localhost and the names that the operator lists are accepted, and no others.
bool is_allowed_host(std::string_view header, const std::vector<std::string>& names);

// Whether an Origin header names the page of this server, as its Host header does.
bool is_same_origin(std::string_view origin, std::string_view host);

// A bearer token. Keeps only its digest.
class BearerToken {
 public:
  // At least 16 printable ASCII characters; a line break at the end is ignored. Throws LockError(invalid_argument).
  explicit BearerToken(std::string_view text);

  // Whether an Authorization header has the token. Takes the same time for every wrong one.
  [[nodiscard]] bool matches(std::string_view header) const;

 private:
  std::array<unsigned char, 32> digest_{};
};

// A token bucket: allows `burst` requests at once, and `rate` per second on average. Not thread-safe.
class RateLimit {
 public:
  using Time = std::chrono::steady_clock::time_point;

  RateLimit(double rate, double burst) : rate_(rate), burst_(burst), left_(burst) {}

  // Counts the request if it is allowed.
  bool allows(Time now);

 private:
  double rate_;
  double burst_;
  double left_;
  Time last_{};
};

}  // namespace syncguard::command
