// Two Redis masters at once: a master that was cut off with a client and a minority of the Sentinels, and a server that
// is not part of the setup at all, but is named by a Sentinel.

#include "redis_pair.hpp"
#include "redis_sentinel.hpp"
#include "servers/certificates.hpp"
#include "servers/fake_redis.hpp"
#include "servers/redis_server.hpp"
#include "support/eventually.hpp"
#include "support/expect_error.hpp"
#include "support/findings.hpp"
#include "support/long_timeouts.hpp"
#include "support/temporary_folder.hpp"

#include <syncguard/syncguard.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <initializer_list>
#include <string>
#include <thread>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr AcquireOptions retrying{.ttl = 10min, .wait = {.timeout = 60s}};

// The master and one Sentinel are on one side of a network, the replica and two Sentinels on the other. Each side logs
// in as a user of its own. While the network is split, the servers refuse the user of the other side.
struct RedisSplitBrain : ::testing::Test {
  RedisSplitBrain() {
    for (auto* one : {&minority, &second, &third}) {
      EXPECT_TRUE(eventually([&] { return one->knows("num-slaves\n1") && one->knows("num-other-sentinels\n2"); }));
    }
    for (auto* server : {&master, &replica}) server->command({"ACL", "SETUSER", RedisServer::user, "+wait"});
  }

  static RedisServer::Options server() {
    return {.configuration = {"user minority on >secret ~* &* +@all", "user majority on >secret ~* &* +@all",
                              // The replica is on the side of the majority.
                              "masteruser majority", "masterauth secret"}};
  }
  static RedisServer::Options sentinel_of(const std::string& side) {
    return {.configuration = {"sentinel auth-user mymaster " + side, "sentinel auth-pass mymaster secret"}};
  }
  static void refuse(RedisServer& server, const std::string& user) {
    server.command({"ACL", "SETUSER", user, "-@all"});
    server.command({"CLIENT", "KILL", "USER", user});
  }

  void split() {
    refuse(master, "majority");
    refuse(replica, "minority");
    // By this command, the other Sentinels would tell it of the new master.
    minority.command({"ACL", "SETUSER", "default", "-publish"});
  }
  // The majority promotes the replica. The old master does not notice.
  void split_and_fail_over() {
    split();
    for (auto* one : {&second, &third}) one->take_silent_master_for_dead();
    for (auto* one : {&second, &third}) {
      EXPECT_TRUE(eventually([&] { return one->master() == as_master(replica); }));
    }
    EXPECT_EQ(minority.master(), as_master(master));
    EXPECT_THAT(master.command({"ROLE"}), StartsWith("master"));
  }
  void heal() {
    master.command({"ACL", "SETUSER", "majority", "+@all"});
    replica.command({"ACL", "SETUSER", "minority", "+@all"});
    minority.command({"ACL", "SETUSER", "default", "+publish"});
  }

  // A client on the side of the old master.
  Locks inside(const std::string& options = "") const {
    return open_with_long_timeout(sentinel_url(address_of(minority.port()), options));
  }
  Locks outside() const {
    return open_with_long_timeout(sentinel_url(address_of(second.port()) + "," + address_of(third.port())));
  }

  RedisPair pair{server(), server()};
  RedisServer& master = pair.master;
  RedisServer& replica = pair.replica;
  Sentinel minority{master, 2, sentinel_of("minority")};
  Sentinel second{master, 2, sentinel_of("majority")};
  Sentinel third{master, 2, sentinel_of("majority")};
};

TEST_F(RedisSplitBrain, LockIsGrantedTwiceWithDifferentFences) {
  auto old_clients = inside();
  auto held = old_clients.acquire("held", retrying);
  EXPECT_TRUE(eventually([&] { return replica.command({"EXISTS", "syncguard:held"}) == "1"; }));
  split_and_fail_over();
  EXPECT_TRUE(held.extend(10min)) << "the old master still serves its clients";
  auto of_old_master = old_clients.acquire("key", retrying);
  auto new_clients = outside();
  auto of_new_master = new_clients.acquire("key", retrying);
  EXPECT_GT(of_new_master.fence(), of_old_master.fence());
  // A new client cannot know better than the Sentinel that it asks.
  EXPECT_EQ(inside().admin().get_by_key("key").value().fence, of_old_master.fence());

  Fence newest = of_new_master.fence();
  for (int i = 0; i < 10; ++i) {
    for (auto* clients : {&old_clients, &new_clients}) {
      // Two grants within 100 us could have the same fence.
      std::this_thread::sleep_for(1ms);
      const auto fence = clients->acquire("another", retrying).fence();
      EXPECT_GT(fence, newest);
      newest = fence;
    }
  }

  heal();
  EXPECT_TRUE(eventually([&] { return answer_of(master, {"ROLE"}).starts_with("slave"); }));
  EXPECT_FALSE(extends(of_old_master)) << "the old master has forgotten what it granted";
  EXPECT_TRUE(eventually([&] { return of_old_master.lost().stop_requested(); }));
  EXPECT_TRUE(extends(of_new_master));
  EXPECT_TRUE(extends(held)) << "a lock from before the split";
  EXPECT_GT(old_clients.acquire("another", retrying).fence(), newest);
}

TEST_F(RedisSplitBrain, MinReplicasToWriteStopsOldMaster) {
  for (auto* server : {&master, &replica}) server->command({"CONFIG", "SET", "min-replicas-to-write", "1"});
  auto old_clients = inside();
  auto held = old_clients.acquire("held", retrying);
  EXPECT_TRUE(eventually([&] { return replica.command({"EXISTS", "syncguard:held"}) == "1"; }));
  split_and_fail_over();
  for (const auto& call :
       std::initializer_list<std::function<void()>>{[&] { (void)old_clients.try_acquire("key"); },
                                                    [&] { (void)held.extend(10min); }, [&] { (void)held.release(); }}) {
    const auto error = error_of(call);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::service_unavailable);
    EXPECT_FALSE(error->in_doubt());
    EXPECT_THAT(error->what(), HasSubstr("too few replicas"));
  }
  EXPECT_TRUE(old_clients.is_locked("held")) << "reads go on";
  // The new master has no replica, either. A second one would let it grant at once.
  auto new_clients = outside();
  expect_error(ErrorCode::service_unavailable, [&] { (void)new_clients.try_acquire("key"); });
  heal();
  EXPECT_TRUE(new_clients.acquire("key", retrying)) << "the old master is now the replica";
  EXPECT_TRUE(eventually([&] { return !error_of([&] { EXPECT_TRUE(held.release()); }); }));
}

TEST_F(RedisSplitBrain, MinReplicasStopsClientsOfOldMaster) {
  auto old_clients = inside("&min_replicas=1&replica_timeout=500ms");
  auto held = old_clients.acquire("held", retrying);
  const auto expires_at = held.expires_at();
  split_and_fail_over();
  for (const auto& call : std::initializer_list<std::function<void()>>{[&] { (void)old_clients.try_acquire("key"); },
                                                                       [&] { (void)held.extend(20min); }}) {
    const auto error = error_of(call);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::service_unavailable);
    EXPECT_TRUE(error->in_doubt());
    EXPECT_THAT(error->what(), HasSubstr("0 of 1"));
  }
  EXPECT_EQ(held.expires_at(), expires_at);
  EXPECT_TRUE(eventually([&] {
    return master.command({"EXISTS", "syncguard:key"}) == "0";
  })) << "the lock that no replica confirmed must not stay behind";
  EXPECT_TRUE(outside().acquire("key", retrying));
}

// The master of another setup, or of an attacker.
TEST_F(RedisSentinel, ForeignMasterIsBelieved) {
  RedisServer foreign;
  const FakeRedis wrong({.answer = naming(foreign)});
  const auto both = sentinel_url(address_of(wrong.port()) + "," + address_of(sentinel.port()));
  {
    const auto lease = open_with_long_timeout(both).acquire("key", retrying);
    EXPECT_EQ(foreign.command({"EXISTS", "syncguard:key"}), "1");
    EXPECT_EQ(master.command({"EXISTS", "syncguard:key"}), "0");
  }
  EXPECT_THAT(verdict_on(open_with_long_timeout(both).admin().diagnose(), "Sentinels"),
              StartsWith("failure: name different masters: "));
  // One that does not accept the password is not used.
  foreign.command({"ACL", "DELUSER", RedisServer::user});
  const auto lease = open_with_long_timeout(both).acquire("key", retrying);
  EXPECT_EQ(master.command({"EXISTS", "syncguard:key"}), "1");
}

TEST(RedisSentinelTls, ForeignMasterIsRefused) {
  const TemporaryFolder certificates;
  make_certificates(certificates.path());
  const RedisServer::Options trusted{
      .tls = true, .certificates = certificates.path(), .configuration = {"tls-replication yes"}};
  RedisServer master(trusted);
  // Its certificate is from another authority. It would accept the password.
  RedisServer foreign({.tls = true});
  const Sentinel wrong(foreign, 1, trusted);
  const Sentinel right(master, 1, trusted);
  const auto url =
      "rediss+sentinel://" + credentials + address_of(wrong.port()) + "," + address_of(right.port()) +
      "/mymaster?sentinel_timeout=20s&connect_timeout=20s&ca_file=" + (certificates.path() / "ca.crt").string();
  const auto lease = open_with_long_timeout(url).acquire("key", retrying);
  EXPECT_EQ(master.command({"EXISTS", "syncguard:key"}), "1");
  EXPECT_EQ(foreign.command({"EXISTS", "syncguard:key"}), "0");
}

}  // namespace
}  // namespace syncguard::testing
