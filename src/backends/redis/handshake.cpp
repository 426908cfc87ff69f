#include "backends/redis/handshake.hpp"

#include "backends/redis/errors.hpp"
#include "backends/redis/protocol.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace syncguard::redis {

Info::Info(std::string_view text) {
  while (!text.empty()) {
    const auto line = text.substr(0, text.find("\r\n"));
    if (const auto colon = line.find(':'); colon != std::string_view::npos) {
      values_.emplace(line.substr(0, colon), line.substr(colon + 1));
    }
    text.remove_prefix(std::min(text.size(), line.size() + 2));
  }
}

std::string Info::value(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? "" : found->second;
}

Info::Eviction Info::eviction() const {
  const auto policy = value("maxmemory_policy");
  const auto limit = value("maxmemory");
  if (limit == "0" || policy == "noeviction") return Eviction::off;
  return policy.empty() || limit.empty() ? Eviction::unknown : Eviction::on;
}

namespace {

bool has_hash_tag(std::string_view prefix) {
  const auto open = prefix.find('{');
  if (open == std::string_view::npos) return false;
  const auto close = prefix.find('}', open);
  return close != std::string_view::npos && close > open + 1;
}

}  // namespace

asio::awaitable<ReplyReader> handshake(Stream& stream, const RedisOptions& options, std::string password, Peer peer,
                                       const Log& log) {
  using Check = std::function<void(const Reply&)>;
  std::string requests;
  std::vector<Check> checks;
  const auto ask = [&](Strings command, Check check) {
    requests += format_command(command);
    checks.push_back(std::move(check));
  };
  const auto must_work = [](const Reply& reply) {
    if (reply.is_error()) throw server_error(reply.text, Effect::none);
  };

  // Thrown after the reply to HELLO: a Sentinel does not know the user of its servers.
  std::optional<LockError> sign_in_error;
  const auto signed_in = [&](const Reply& reply) {
    if (!reply.is_error()) return;
    const bool concerns_credentials =
        code_of(reply.text) != "DENIED" && server_error(reply.text).code() != ErrorCode::rate_limited;
    if (!concerns_credentials) throw server_error(reply.text, Effect::none);
    // Without the server's message, which may repeat the password: "unknown command 'AUTH', with args beginning with".
    sign_in_error = LockError(ErrorCode::auth_failed, "Redis rejected the user name or password");
  };
  if (!options.username.empty()) {
    ask({"AUTH", options.username, password}, signed_in);
  } else if (!password.empty()) {
    ask({"AUTH", password}, signed_in);
  }
  ask({"HELLO"}, [&](const Reply& reply) {
    if (peer == Peer::server && reply.field("mode") == "sentinel") {
      throw LockError(
          ErrorCode::invalid_argument,
          "this is a Redis Sentinel, not a server: write redis+sentinel:// (with TLS rediss+sentinel://) and "
          "the name of its master, as in redis+sentinel://host:26379/mymaster");
    }
    if (sign_in_error) throw LockError(*sign_in_error);
    must_work(reply);
    if (reply.field("mode") == "cluster" && !has_hash_tag(options.prefix)) {
      throw LockError(ErrorCode::invalid_argument,
                      "this is a Redis Cluster, which needs a prefix with a hash tag, such as {syncguard}");
    }
    // With one configured address, a replica is used as it is. Every node of a cluster redirects to the right one.
    const bool may_find_another = options.sentinel || !options.more_addresses.empty();
    if (may_find_another && reply.field("role") == "replica" && reply.field("mode") != "cluster") {
      throw server_error("READONLY", Effect::none);
    }
  });
  const auto database = std::to_string(options.database);
  if (options.database != 0) ask({"SELECT", database}, must_work);
  // Optional: the user may lack the permissions.
  if (!options.client_name.empty()) ask({"CLIENT", "SETNAME", options.client_name}, [](const Reply&) {});
  ask({"INFO", "memory"}, [&](const Reply& reply) {
    if (reply.is_error() || Info(reply.text).eviction() != Info::Eviction::on) return;
    log.warn("redis-eviction",
             "this Redis may evict locks and fence counters when its memory is full: set maxmemory-policy noeviction");
  });

  // A server that rejects a client sends an error and closes the connection without reading. So if the write fails, the
  // error may still be readable. Otherwise reading fails, too.
  try {
    co_await stream.write(asio::buffer(requests));
  } catch (const LockError& error) {
    log.debug(std::string("during the handshake with Redis: ") + error.what());
  }
  ReplyReader reader;
  std::array<char, 4096> buffer{};
  for (const auto& check : checks) {
    auto reply = reader.next();
    while (!reply) {
      std::size_t size = 0;
      try {
        size = co_await stream.read_some(asio::buffer(buffer));
      } catch (const LockError&) {
        if (sign_in_error) throw LockError(*sign_in_error);
        throw;
      }
      reader.feed({buffer.data(), size});
      reply = reader.next();
    }
    check(*reply);
  }
  co_return reader;
}

}  // namespace syncguard::redis
