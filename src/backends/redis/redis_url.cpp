#include "backends/redis/redis_url.hpp"

#include <charconv>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

namespace syncguard::redis {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw LockError(ErrorCode::invalid_argument, message); }

// Messages never repeat what they refuse: with a character that should have been escaped, anything can be part of a
// password.
std::int64_t number(std::string_view text, std::int64_t least, std::int64_t most, const std::string& what) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    refuse(what + " in a Redis URL is a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

constexpr std::int64_t most_databases = std::numeric_limits<int>::max();

// user:password, where each may be missing.
void read_user(std::string_view text, RedisOptions& options) {
  const auto colon = text.find(':');
  options.username = BackendUrl::decode(text.substr(0, colon));
  if (colon != std::string_view::npos) options.password = BackendUrl::decode(text.substr(colon + 1));
}

// host:port, [address]:port
void read_host(std::string_view text, RedisOptions& options) {
  std::string_view port;
  if (text.starts_with('[')) {
    const auto end = text.find(']');
    if (end == std::string_view::npos) refuse("a Redis URL has a [ without a ]");
    options.host = text.substr(1, end - 1);
    port = text.substr(end + 1);
  } else {
    const auto colon = text.find(':');
    if (colon != 0 && !text.empty()) options.host = BackendUrl::decode(text.substr(0, colon));
    if (colon != std::string_view::npos) port = text.substr(colon);
  }
  if (port.empty()) return;
  if (!port.starts_with(':')) refuse("in a Redis URL, the port comes after a colon");
  options.port =
      static_cast<std::uint16_t>(number(port.substr(1), 1, std::numeric_limits<std::uint16_t>::max(), "the port"));
}

void read_network(std::string_view rest, RedisOptions& options) {
  if (!rest.starts_with("//")) refuse("a Redis URL is written redis://user:password@host:port/database");
  rest.remove_prefix(2);
  auto authority = rest.substr(0, rest.find('/'));
  auto path = rest.substr(authority.size());
  if (const auto at = authority.rfind('@'); at != std::string_view::npos) {
    read_user(authority.substr(0, at), options);
    authority.remove_prefix(at + 1);
  }
  read_host(authority, options);
  if (path.starts_with('/')) path.remove_prefix(1);
  if (!path.empty()) options.database = static_cast<int>(number(path, 0, most_databases, "the database"));
}

// redis+unix:PATH, redis+unix://user:password@PATH
void read_unix(std::string_view rest, RedisOptions& options) {
  if (rest.starts_with("//")) {
    rest.remove_prefix(2);
    if (const auto at = rest.substr(0, rest.find('/')).rfind('@'); at != std::string_view::npos) {
      read_user(rest.substr(0, at), options);
      rest.remove_prefix(at + 1);
    }
  }
  options.unix_socket = BackendUrl::decode(rest);
  if (options.unix_socket.empty()) refuse("redis+unix: needs the path of a socket, as in redis+unix:/run/redis.sock");
}

void read_tls(BackendUrl& url, RedisOptions& options) {
  RedisTls tls;
  tls.verify = url.take_flag("verify").value_or(tls.verify);
  tls.ca_file = url.take_text("ca_file").value_or("");
  tls.certificate_file = url.take_text("certificate_file").value_or("");
  tls.key_file = url.take_text("key_file").value_or("");
  tls.server_name = url.take_text("server_name").value_or("");
  options.tls = tls;
}

}  // namespace

RedisOptions options_of(BackendUrl& url) {
  RedisOptions options;
  if (url.scheme() == "redis+unix") {
    read_unix(url.rest(), options);
  } else {
    read_network(url.rest(), options);
  }
  if (url.scheme() == "rediss") read_tls(url, options);

  constexpr std::int64_t most_connections = 64;
  constexpr std::int64_t longest_queue = 1'000'000;
  const auto number_or = [&](const char* name, std::int64_t least, std::int64_t most, std::size_t otherwise) {
    const auto value = url.take_integer(name, least, most);
    return value ? static_cast<std::size_t>(*value) : otherwise;
  };
  if (const auto database = url.take_integer("database", 0, most_databases)) {
    if (options.database != 0) refuse("a Redis URL names its database once: in its path or as an option");
    options.database = static_cast<int>(*database);
  }
  options.prefix = url.take_text("prefix").value_or(options.prefix);
  options.client_name = url.take_text("client_name").value_or(options.client_name);
  options.connect_timeout = url.take_duration("connect_timeout").value_or(options.connect_timeout);
  options.operation_timeout = url.take_duration("operation_timeout").value_or(options.operation_timeout);
  if (const auto idle = url.take_duration("keep_alive")) {
    options.keep_alive = std::chrono::ceil<std::chrono::seconds>(*idle);
  }
  options.connections = number_or("connections", 1, most_connections, options.connections);
  options.queue = number_or("queue", 1, longest_queue, options.queue);
  options.cleanup_in_is_locked = url.take_flag("cleanup_in_is_locked").value_or(options.cleanup_in_is_locked);
  return options;
}

std::unique_ptr<Backend> from_url(BackendUrl& url, const BackendContext& context) {
  auto options = options_of(url);
  options.operation_timeout = context.operation_timeout.value_or(options.operation_timeout);
  return make_redis_backend(std::move(options), context.log);
}

}  // namespace syncguard::redis
