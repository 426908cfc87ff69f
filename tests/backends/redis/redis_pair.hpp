// A Redis master and its replica.
#pragma once

#include "servers/redis_server.hpp"
#include "support/eventually.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace syncguard::testing {

struct RedisPair {
  explicit RedisPair(RedisServer::Options of_master = {}, RedisServer::Options of_replica = {})
      : master(without_sync_delay(std::move(of_master))), replica(without_sync_delay(std::move(of_replica))) {
    replica.command({"REPLICAOF", "127.0.0.1", std::to_string(master.port())});
    expect_in_sync();
  }

  void expect_in_sync() {
    EXPECT_TRUE(eventually([&] {
      return replica.command({"INFO", "replication"}).find("master_link_status:up") != std::string::npos;
    }));
  }

  RedisServer master;
  RedisServer replica;

 private:
  // The delay lets several replicas share one synchronization.
  static RedisServer::Options without_sync_delay(RedisServer::Options options) {
    options.configuration.emplace_back("repl-diskless-sync-delay 0");
    return options;
  }
};

}  // namespace syncguard::testing
