#include "backends/redis/sentinel.hpp"

#include "backends/redis/protocol.hpp"

#include <string>
#include <utility>

namespace syncguard::redis {

std::shared_ptr<Connection> connect_to_sentinel(const RedisOptions& options, std::shared_ptr<const Tls> tls,
                                                const Address& address) {
  auto own = std::make_shared<RedisOptions>(options);
  own->host = address.host;
  own->port = address.port;
  own->more_addresses.clear();
  own->sentinel.reset();
  own->username = options.sentinel->username;
  own->password = options.sentinel->password;
  own->password_callback = nullptr;
  own->database = 0;
  own->connect_timeout = options.sentinel->timeout;
  return std::make_shared<Connection>(std::move(own), std::move(tls), Log([](LogLevel, std::string_view) {}),
                                      Connection::Events{}, Peer::sentinel);
}

asio::awaitable<SentinelAnswer> ask_sentinel(const RedisOptions& options, std::shared_ptr<const Tls> tls,
                                             Address address, std::stop_token stop) {
  const ScopedConnection sentinel(connect_to_sentinel(options, std::move(tls), address));
  const CallLimits limits{std::move(stop), Clock::now() + options.sentinel->timeout};
  const auto& name = options.sentinel->master;
  auto ask_master = format_command({"SENTINEL", "GET-MASTER-ADDR-BY-NAME", name});
  const auto master = co_await sentinel->call(std::move(ask_master), limits);
  SentinelAnswer answer{.master = master_of(master.reply), .others = {}};
  auto ask_others = format_command({"SENTINEL", "SENTINELS", name});
  try {
    const auto others = co_await sentinel->call(std::move(ask_others), limits);
    answer.others = sentinels_of(others.reply);
  } catch (const LockError& error) {
    // Not needed: the master is known, and the user may lack permission to list Sentinels.
    if (error.code() == ErrorCode::aborted) throw;
  }
  co_return answer;
}

}  // namespace syncguard::redis
