#include "command/access_rules.hpp"

#include "core/encodings.hpp"

#include <syncguard/error.hpp>

#include <arpa/inet.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace syncguard::command {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool is_same_name(std::string_view left, std::string_view right) {
  return std::ranges::equal(left, right, [](char a, char b) { return lower(a) == lower(b); });
}

std::optional<in_addr> ipv4(const std::string& text) {
  in_addr address{};
  return inet_pton(AF_INET, text.c_str(), &address) == 1 ? std::optional(address) : std::nullopt;
}

std::optional<in6_addr> ipv6(const std::string& text) {
  in6_addr address{};
  return inet_pton(AF_INET6, text.c_str(), &address) == 1 ? std::optional(address) : std::nullopt;
}

struct HostAndPort {
  std::string host;
  std::string_view port;
  bool has_brackets = false;
  bool has_port = false;
};

// nullopt if brackets do not match.
std::optional<HostAndPort> split(std::string_view text) {
  HostAndPort parts;
  auto end = text.rfind(':');
  if (text.starts_with('[')) {
    const auto bracket = text.find(']');
    if (bracket == std::string_view::npos) return std::nullopt;
    parts.host = text.substr(1, bracket - 1);
    parts.has_brackets = true;
    const auto rest = text.substr(bracket + 1);
    if (!rest.empty() && !rest.starts_with(':')) return std::nullopt;
    parts.has_port = !rest.empty();
    parts.port = rest.empty() ? rest : rest.substr(1);
    return parts;
  }
  parts.has_port = end != std::string_view::npos;
  parts.host = text.substr(0, end);
  if (parts.has_port) parts.port = text.substr(end + 1);
  return parts;
}

std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return port;
}

bool is_ip_address(const HostAndPort& parts) {
  return parts.has_brackets ? ipv6(parts.host).has_value() : ipv4(parts.host).has_value();
}

}  // namespace

ListenAddress ListenAddress::parse(std::string_view text) {
  const auto parts = split(text);
  const auto port = parts ? parse_port(parts->port) : std::nullopt;
  if (!port || !(is_ip_address(*parts) || parts->host == "localhost")) {
    throw LockError(ErrorCode::invalid_argument,
                    "the address to listen on must be an IP address and a port, such as 127.0.0.1:9465 or [::1]:9465");
  }
  return {.host = parts->host == "localhost" ? "127.0.0.1" : parts->host, .port = *port};
}

bool ListenAddress::is_loopback() const {
  if (const auto address = ipv4(host)) return (ntohl(address->s_addr) >> 24U) == 127;
  const auto address = ipv6(host);
  return address && IN6_IS_ADDR_LOOPBACK(&*address);
}

std::string ListenAddress::str() const { return (is_ipv6() ? "[" + host + "]" : host) + ":" + std::to_string(port); }

bool is_allowed_host(std::string_view header, const std::vector<std::string>& names) {
  const auto parts = split(header);
  if (!parts || (parts->has_port && !parse_port(parts->port))) return false;
  if (is_ip_address(*parts)) return true;
  if (parts->has_brackets) return false;
  return is_same_name(parts->host, "localhost") ||
         std::ranges::any_of(names, [&](const auto& name) { return is_same_name(parts->host, name); });
}

bool is_same_origin(std::string_view origin, std::string_view host) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (origin.starts_with(scheme)) return !host.empty() && is_same_name(origin.substr(scheme.size()), host);
  }
  return false;
}

BearerToken::BearerToken(std::string_view text) {
  constexpr std::size_t min_length = 16;
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  const bool is_printable = std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
  if (text.size() < min_length || !is_printable) {
    throw LockError(
        ErrorCode::invalid_argument,
        "a token has at least 16 printable ASCII characters without spaces; make one with: openssl rand -hex "
        "32");
  }
  digest_ = core::sha256(text);
}

bool BearerToken::matches(std::string_view header) const {
  constexpr std::string_view scheme = "Bearer ";
  if (header.size() < scheme.size() || !is_same_name(header.substr(0, scheme.size()), scheme)) return false;
  header.remove_prefix(scheme.size());
  const auto digest = core::sha256(header);
  return CRYPTO_memcmp(digest.data(), digest_.data(), digest.size()) == 0;
}

bool RateLimit::allows(Time now) {
  if (last_ != Time{}) left_ = std::min(burst_, left_ + rate_ * std::chrono::duration<double>(now - last_).count());
  last_ = now;
  if (left_ < 1) return false;
  left_ -= 1;
  return true;
}

}  // namespace syncguard::command
