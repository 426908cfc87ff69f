// A Redis master with a replica and a Sentinel.
#pragma once

#include "redis_pair.hpp"
#include "servers/redis_server.hpp"
#include "support/eventually.hpp"
#include "support/expect_error.hpp"

#include <syncguard/syncguard.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace syncguard::testing {

inline const std::string credentials = std::string(RedisServer::user) + ":p%40ss%3Aw%2Frd%3F@";

inline std::string address_of(int port) { return "127.0.0.1:" + std::to_string(port); }

inline std::string sentinel_url(const std::string& addresses, const std::string& options = "") {
  // A busy machine may be slow. Tests of these timeouts set their own.
  const auto unless_set = [&](const std::string& timeout) {
    return options.find(timeout) == std::string::npos ? "&" + timeout + "=20s" : "";
  };
  return "redis+sentinel://" + credentials + addresses + "/mymaster?prefix=syncguard" + options +
         unless_set("connect_timeout") + unless_set("sentinel_timeout");
}

// A Sentinel that takes no server for dead, and never enters TILT mode, because the machine is busy.
struct Sentinel : RedisServer {
  explicit Sentinel(const RedisServer& master, int quorum = 1, Options options = {})
      : RedisServer(monitoring(master, quorum, std::move(options))) {
    command({"SENTINEL", "DEBUG", "TILT-TRIGGER", "600000"});
    command({"SENTINEL", "DEBUG", "INFO-PERIOD", "200"});
    command({"SENTINEL", "DEBUG", "PUBLISH-PERIOD", "200"});
  }

  static Options monitoring(const RedisServer& master, int quorum, Options options) {
    options.sentinel = true;
    auto& lines = options.configuration;
    lines.push_back("sentinel monitor mymaster 127.0.0.1 " + std::to_string(master.port()) + " " +
                    std::to_string(quorum));
    lines.emplace_back("sentinel down-after-milliseconds mymaster 600000");
    // A failover that failed is tried again after twice this time.
    lines.emplace_back("sentinel failover-timeout mymaster 10000");
    return options;
  }

  // Whether its description of the master contains this text.
  bool knows(const std::string& text) {
    return command({"SENTINEL", "MASTER", "mymaster"}).find(text) != std::string::npos;
  }
  void take_silent_master_for_dead() { command({"SENTINEL", "SET", "mymaster", "down-after-milliseconds", "500"}); }
  std::string master() { return command({"SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"}); }
};

inline std::string as_master(const RedisServer& server) { return "127.0.0.1\n" + std::to_string(server.port()); }

// The answer of a Sentinel that names this server.
inline std::string naming(const RedisServer& server) {
  const auto port = std::to_string(server.port());
  return "*2\r\n$9\r\n127.0.0.1\r\n$" + std::to_string(port.size()) + "\r\n" + port + "\r\n";
}

// Empty if the server refuses, or hangs up: a Sentinel closes all connections of a server that it promotes or demotes.
inline std::string answer_of(RedisServer& server, const std::vector<std::string>& words) {
  try {
    return server.command(words);
  } catch (const std::runtime_error&) {
    return "";
  }
}

struct RedisSentinel : ::testing::Test, RedisPair {
  RedisSentinel() {
    EXPECT_TRUE(eventually([&] { return sentinel.knows("num-slaves\n1"); }));
  }

  [[nodiscard]] std::string url(const std::string& options = "") const {
    return sentinel_url(address_of(sentinel.port()), options);
  }

  // The replica receives nothing more: it stands still, and the master has closed its connection.
  void cut_off_replica() {
    replica.pause();
    master.command({"CLIENT", "KILL", "TYPE", "replica"});
    EXPECT_TRUE(eventually([&] {
      return master.command({"INFO", "replication"}).find("connected_slaves:0") != std::string::npos;
    }));
  }

  // Waits until the replica is the master.
  void expect_failover() {
    EXPECT_TRUE(eventually([&] { return sentinel.master() == as_master(replica); }));
  }
  void kill_master() {
    master.kill();
    fail_over();
  }
  // The master is dead. A replica that was cut off is not told what it missed.
  void fail_over() {
    replica.resume();
    replica.command({"PING"});
    sentinel.take_silent_master_for_dead();
    expect_failover();
    sentinel.command({"SENTINEL", "SET", "mymaster", "down-after-milliseconds", "600000"});
  }
  // The promoted replica will have the lock "key".
  void expect_replicated(const std::string& key = "key") {
    EXPECT_TRUE(eventually([&] { return replica.command({"EXISTS", "syncguard:" + key}) == "1"; }));
  }

  Sentinel sentinel{master};
};

// Whether a lock is extended, once there is a server that answers.
inline bool extends(Lease& lease) {
  bool extended = false;
  EXPECT_TRUE(eventually([&] { return !error_of([&] { extended = lease.extend(std::chrono::minutes(10)); }); }));
  return extended;
}

}  // namespace syncguard::testing
