#include "backends/redis/handshake.hpp"

#include "backends/redis/command.hpp"
#include "backends/redis/info.hpp"
#include "backends/redis/server_error.hpp"

#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace syncguard::redis {
namespace {

bool has_hash_tag(std::string_view prefix) {
  const auto open = prefix.find('{');
  if (open == std::string_view::npos) return false;
  const auto close = prefix.find('}', open);
  return close != std::string_view::npos && close > open + 1;
}

// HELLO's reply is a flat list of names and values.
std::string_view field(const Reply& hello, std::string_view name) {
  for (std::size_t i = 0; i + 1 < hello.elements.size(); i += 2) {
    if (hello.elements[i].text == name) return hello.elements[i + 1].text;
  }
  return {};
}

}  // namespace

asio::awaitable<ReplyReader> shake_hands(Stream& stream, const RedisOptions& options, const Log& log) {
  using Check = std::function<void(const Reply&)>;
  std::string requests;
  std::vector<Check> checks;
  const auto ask = [&](Words command, Check check) {
    requests += format_command(command);
    checks.push_back(std::move(check));
  };
  const auto must_work = [](const Reply& reply) {
    if (reply.is_error()) throw server_error(reply.text, Effect::none);
  };

  const auto signed_in = [](const Reply& reply) {
    if (!reply.is_error()) return;
    const bool about_this_client =
        code_of(reply.text) != "DENIED" && server_error(reply.text).code() != ErrorCode::rate_limited;
    if (!about_this_client) throw server_error(reply.text, Effect::none);
    // Without the server's words: they may repeat the password, as in "unknown command 'AUTH', with args beginning
    // with".
    throw LockError(ErrorCode::auth_failed, "Redis refused the user or the password");
  };
  if (!options.username.empty()) {
    ask({"AUTH", options.username, options.password}, signed_in);
  } else if (!options.password.empty()) {
    ask({"AUTH", options.password}, signed_in);
  }
  ask({"HELLO"}, [&](const Reply& reply) {
    must_work(reply);
    if (field(reply, "mode") == "cluster" && !has_hash_tag(options.prefix)) {
      throw LockError(ErrorCode::invalid_argument,
                      "this is a Redis Cluster, which needs a prefix with a hash tag, such as {syncguard}");
    }
  });
  const auto database = std::to_string(options.database);
  if (options.database != 0) ask({"SELECT", database}, must_work);
  // Niceties, which a user may not be allowed.
  if (!options.client_name.empty()) ask({"CLIENT", "SETNAME", options.client_name}, [](const Reply&) {});
  ask({"INFO", "memory"}, [&](const Reply& reply) {
    if (reply.is_error() || Info(reply.text).eviction() != Info::Eviction::on) return;
    log.warn("redis-eviction",
             "this Redis may evict locks and fence counters when its memory is full: set maxmemory-policy noeviction");
  });

  // A server that refuses a client says so and hangs up without having read anything: the write may fail, but the words
  // are there to be read. Where they are not, reading fails, too.
  try {
    co_await stream.write(asio::buffer(requests));
  } catch (const LockError& error) {
    log.debug(std::string("while greeting Redis: ") + error.what());
  }
  ReplyReader reader;
  std::array<char, 4096> buffer{};
  for (const auto& check : checks) {
    auto reply = reader.next();
    while (!reply) {
      const auto size = co_await stream.read_some(asio::buffer(buffer));
      reader.feed({buffer.data(), size});
      reply = reader.next();
    }
    check(*reply);
  }
  co_return reader;
}

}  // namespace syncguard::redis
