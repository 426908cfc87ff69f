// Any bytes as an address to listen on, and as headers and body of a request to `serve`: none of another site is let
// in.

#include "command/access_rules.hpp"
#include "command/json.hpp"

#include <syncguard/error.hpp>

#include <arpa/inet.h>

#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

using namespace syncguard;
using namespace syncguard::command;

const std::string token = "0123456789abcdef";
const std::string name = "locks.example";

void require(bool holds) {
  if (!holds) std::abort();
}

std::string lower(std::string_view text) {
  std::string lowered(text);
  for (auto& c : lowered) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lowered;
}

bool is_ip_address(const std::string& host) {
  in6_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 || inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// What is left of an accepted Host header without its port and brackets must be known.
void require_known_host(std::string host) {
  const auto colon = host.rfind(':');
  if (colon != std::string::npos && host.find(']', colon) == std::string::npos) host.resize(colon);
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  require(is_ip_address(host) || lower(host) == "localhost" || lower(host) == name);
}

void read_listen_address(std::string_view text) {
  try {
    const auto address = ListenAddress::parse(text);
    require(is_ip_address(address.host));
    require(ListenAddress::parse(address.str()).str() == address.str());
    (void)address.is_loopback();
  } catch (const LockError& error) {
    require(error.code() == ErrorCode::invalid_argument);
  }
}

void read_token(std::string_view text) {
  try {
    const BearerToken from_file(text);
    while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
    require(from_file.matches("Bearer " + std::string(text)));
    require(!from_file.matches("Bearer " + std::string(text) + "x") && !from_file.matches(text));
  } catch (const LockError& error) {
    require(error.code() == ErrorCode::invalid_argument);
  }
}

void read_body(std::string_view text) {
  try {
    const auto request = BreakRequest::parse(text);
    require(!request.key.str().empty() && request.fence.value() <= Fence::max_value);
  } catch (const LockError& error) {
    require(error.code() == ErrorCode::invalid_argument);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read_listen_address(text);
  read_token(text);
  read_body(text);
  if (is_allowed_host(text, {name})) require_known_host(std::string(text));
  require(!is_same_origin(text, "") && !is_same_origin(text, "other.example/"));
  if (is_same_origin(text, name)) {
    require(lower(text) == "http://" + name || lower(text) == "https://" + name);
  }
  const BearerToken expected(token);
  if (expected.matches(text)) require(text.size() == 7 + token.size() && text.ends_with(token));
  return 0;
}
