#include "backends/url.hpp"

#include "core/validation.hpp"
#include "os/password.hpp"

#include <charconv>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

namespace syncguard::redis {
namespace {

using core::refuse;

// Messages never repeat the invalid text: with a character that should have been escaped, anything can be part of a
// password.
std::int64_t number(std::string_view text, std::int64_t minimum, std::int64_t maximum, const std::string& what) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < minimum || value > maximum) {
    refuse(what + " in a Redis URL is a whole number from " + std::to_string(minimum) + " to " +
           std::to_string(maximum));
  }
  return value;
}

constexpr std::int64_t max_database = std::numeric_limits<int>::max();

// user:password, where each may be missing.
void read_user(std::string_view text, RedisOptions& options) {
  const auto colon = text.find(':');
  options.username = BackendUrl::decode(text.substr(0, colon));
  if (colon != std::string_view::npos) options.password = BackendUrl::decode(text.substr(colon + 1));
}

// host:port, [address]:port
RedisAddress read_address(std::string_view text, std::uint16_t default_port) {
  RedisAddress address{.port = default_port};
  std::string_view port;
  if (text.starts_with('[')) {
    const auto end = text.find(']');
    if (end == std::string_view::npos) refuse("the Redis URL has a [ without a ]");
    address.host = text.substr(1, end - 1);
    port = text.substr(end + 1);
  } else {
    const auto colon = text.find(':');
    if (colon != 0 && !text.empty()) address.host = BackendUrl::decode(text.substr(0, colon));
    if (colon != std::string_view::npos) port = text.substr(colon);
  }
  if (port.empty()) return address;
  if (!port.starts_with(':')) refuse("in a Redis URL, the port must follow a colon");
  address.port =
      static_cast<std::uint16_t>(number(port.substr(1), 1, std::numeric_limits<std::uint16_t>::max(), "the port"));
  return address;
}

// address,address,...
void read_addresses(std::string_view text, std::uint16_t default_port, RedisOptions& options) {
  auto comma = text.find(',');
  auto first = read_address(text.substr(0, comma), default_port);
  options.host = std::move(first.host);
  options.port = first.port;
  while (comma != std::string_view::npos) {
    text.remove_prefix(comma + 1);
    comma = text.find(',');
    if (text.empty() || comma == 0) refuse("in a Redis URL, a comma must be followed by another address");
    options.more_addresses.push_back(read_address(text.substr(0, comma), default_port));
  }
}

void read_database(std::string_view text, RedisOptions& options) {
  if (!text.empty()) options.database = static_cast<int>(number(text, 0, max_database, "the database"));
}

// /master, /master/database
void read_master(std::string_view path, RedisOptions& options) {
  const auto name = path.substr(0, path.find('/'));
  if (name.empty()) {
    refuse("a Sentinel URL needs the name of the master, as in redis+sentinel://host1:26379,host2:26379/mymaster");
  }
  options.sentinel.emplace().master = BackendUrl::decode(name);
  path.remove_prefix(name.size());
  if (path.starts_with('/')) path.remove_prefix(1);
  read_database(path, options);
}

enum class Addresses { servers, sentinels };

void read_network(std::string_view rest, Addresses addresses, RedisOptions& options) {
  if (!rest.starts_with("//")) {
    refuse(addresses == Addresses::servers
               ? "a Redis URL is written redis://user:password@host:port/database"
               : "a Sentinel URL is written redis+sentinel://user:password@host:port,host:port/master/database");
  }
  rest.remove_prefix(2);
  auto authority = rest.substr(0, rest.find('/'));
  auto path = rest.substr(authority.size());
  if (const auto at = authority.rfind('@'); at != std::string_view::npos) {
    read_user(authority.substr(0, at), options);
    authority.remove_prefix(at + 1);
  }
  constexpr std::uint16_t server_port = 6379;
  constexpr std::uint16_t sentinel_port = 26379;
  read_addresses(authority, addresses == Addresses::servers ? server_port : sentinel_port, options);
  if (path.starts_with('/')) path.remove_prefix(1);
  if (addresses == Addresses::servers) {
    read_database(path, options);
  } else {
    read_master(path, options);
  }
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

void read_sentinel(BackendUrl& url, RedisSentinel& sentinel) {
  sentinel.username = url.take_text("sentinel_username").value_or("");
  sentinel.password = url.take_text("sentinel_password").value_or("");
  sentinel.timeout = url.take_duration("sentinel_timeout").value_or(sentinel.timeout);
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
    const bool has_sentinels = url.scheme().ends_with("+sentinel");
    read_network(url.rest(), has_sentinels ? Addresses::sentinels : Addresses::servers, options);
  }
  if (options.sentinel) read_sentinel(url, *options.sentinel);
  if (url.scheme().starts_with("rediss")) read_tls(url, options);

  constexpr std::int64_t max_connections = 64;
  constexpr std::int64_t max_queue = 1'000'000;
  constexpr std::int64_t max_min_replicas = 16;
  const auto number_or = [&](const char* name, std::int64_t minimum, std::int64_t maximum, std::size_t otherwise) {
    const auto value = url.take_integer(name, minimum, maximum);
    return value ? static_cast<std::size_t>(*value) : otherwise;
  };
  if (const auto database = url.take_integer("database", 0, max_database)) {
    if (options.database != 0) refuse("a Redis URL must name its database only once: in its path or as an option");
    options.database = static_cast<int>(*database);
  }
  if (const auto command = url.take_text("password_command")) {
    if (!options.password.empty()) refuse("a Redis URL must have either a password or a password_command, not both");
    options.password_callback = os::password_from_command(*command);
  }
  options.prefix = url.take_text("prefix").value_or(options.prefix);
  options.client_name = url.take_text("client_name").value_or(options.client_name);
  options.connect_timeout = url.take_duration("connect_timeout").value_or(options.connect_timeout);
  options.operation_timeout = url.take_duration("operation_timeout").value_or(options.operation_timeout);
  if (const auto idle = url.take_duration("keep_alive")) {
    options.keep_alive = std::chrono::ceil<std::chrono::seconds>(*idle);
  }
  options.silence_timeout = url.take_duration("silence_timeout").value_or(options.silence_timeout);
  options.connections = number_or("connections", 1, max_connections, options.connections);
  options.queue = number_or("queue", 1, max_queue, options.queue);
  options.min_replicas = number_or("min_replicas", 0, max_min_replicas, options.min_replicas);
  options.replica_timeout = url.take_duration("replica_timeout").value_or(options.replica_timeout);
  options.fences = take_fences(url);
  options.cleanup_in_is_locked = url.take_flag("cleanup_in_is_locked").value_or(options.cleanup_in_is_locked);
  return options;
}

std::unique_ptr<Backend> from_url(BackendUrl& url, const BackendContext& context) {
  auto options = options_of(url);
  options.operation_timeout = context.operation_timeout.value_or(options.operation_timeout);
  return make_redis_backend(std::move(options), context.log);
}

}  // namespace syncguard::redis
