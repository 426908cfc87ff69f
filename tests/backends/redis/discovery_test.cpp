// How a server is found: in turn, by Sentinels, by redirection. No I/O.

#include "backends/redis/discovery.hpp"
#include "backends/redis/server_address.hpp"
#include "support/expect_error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using redis::Address;
using redis::Discovery;
using redis::Reply;
using redis::ServerAddress;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Clock = ServerAddress::Clock;

RedisOptions two_servers() {
  RedisOptions options;
  options.host = "home";
  options.port = 1;
  options.more_addresses.push_back({"second", 2});
  return options;
}

RedisOptions two_sentinels() {
  auto options = two_servers();
  options.sentinel.emplace().master = "mymaster";
  return options;
}

const LockError refused(ErrorCode::service_unavailable, "refused");

// The addresses that an attempt uses if none of them helps.
std::vector<std::string> hosts_of(Discovery discovery) {
  std::vector<std::string> hosts;
  for (auto step = discovery.next(); step.action != Discovery::Action::give_up; step = discovery.next()) {
    hosts.push_back(step.address.host);
    discovery.failed(refused);
  }
  return hosts;
}

TEST(RedisServerAddress, FollowsTheClusterUntilReset) {
  ServerAddress address(two_servers());
  EXPECT_THAT(hosts_of(address.discover()), ElementsAre("home", "second"));
  address.move_to({"there", 3});
  EXPECT_THAT(hosts_of(address.discover()), ElementsAre("there"));
  address.lost();
  EXPECT_THAT(hosts_of(address.discover()), ElementsAre("there")) << "a blip of the network moves no keys";
  address.discovered(address.discover());
  address.reset();
  EXPECT_THAT(hosts_of(address.discover()), ElementsAre("home", "second"));
}

TEST(RedisServerAddress, StartsWithServerThatWorkedLast) {
  ServerAddress address(two_servers());
  auto discovery = address.discover();
  discovery.failed(refused);
  address.discovered(discovery);
  EXPECT_THAT(hosts_of(address.discover()), ElementsAre("second", "home"));
}

TEST(RedisServerAddress, AsksSentinelsAgainAfterLoss) {
  ServerAddress address(two_sentinels());
  address.move_to({"master", 3});
  const auto told = address.discover();
  EXPECT_EQ(told.next().action, Discovery::Action::connect);
  address.discovered(told);
  address.lost();
  EXPECT_EQ(address.discover().next().action, Discovery::Action::ask_sentinel);
  EXPECT_THAT(hosts_of(address.discover()), ElementsAre("home", "second")) << "a master is no Sentinel";
}

TEST(RedisServerAddress, StartsWithSentinelThatAnsweredLastAndLearnsOthers) {
  ServerAddress address(two_sentinels());
  auto discovery = address.discover();
  discovery.failed(refused);
  discovery.answered({.master = {"master", 3}, .others = {{"third", 4}, {"home", 1}}});
  address.discovered(discovery);
  EXPECT_THAT(hosts_of(address.discover()), ElementsAre("second", "home", "third"));
  // Sentinels that none of the others knows any more are forgotten.
  auto later = address.discover();
  later.failed(refused);
  later.answered({.master = {"master", 3}, .others = {}});
  address.discovered(later);
  EXPECT_THAT(hosts_of(address.discover()), ElementsAre("home", "second"));
}

Discovery discovery_with(std::initializer_list<const char*> sentinels) {
  std::vector<Address> addresses;
  for (const auto* host : sentinels) addresses.push_back({host, 1});
  return Discovery(Discovery::Source::sentinels, addresses);
}

TEST(RedisDiscovery, ConnectsToMasterThatSentinelNames) {
  auto discovery = discovery_with({"a", "b"});
  EXPECT_EQ(discovery.next().action, Discovery::Action::ask_sentinel);
  EXPECT_EQ(discovery.next().address.host, "a");
  discovery.failed(refused);
  EXPECT_EQ(discovery.next().address.host, "b");
  discovery.answered({.master = {"master", 3}, .others = {{"c", 1}}});
  EXPECT_EQ(discovery.next().action, Discovery::Action::connect);
  EXPECT_EQ(discovery.next().address, (Address{"master", 3}));
  EXPECT_EQ(discovery.origin().host, "b");
  EXPECT_THAT(discovery.learned(), ElementsAre(Address{"c", 1}));
}

TEST(RedisDiscovery, AsksNextSentinelIfNamedServerCannotBeUsed) {
  auto discovery = discovery_with({"outdated", "of the same opinion", "right"});
  discovery.answered({.master = {"replica", 3}, .others = {}});
  discovery.failed(refused);
  EXPECT_EQ(discovery.next().address.host, "of the same opinion");
  discovery.answered({.master = {"replica", 3}, .others = {}});
  EXPECT_EQ(discovery.next().action, Discovery::Action::ask_sentinel) << "the replica was tried already";
  EXPECT_EQ(discovery.next().address.host, "right");
  discovery.answered({.master = {"master", 3}, .others = {}});
  EXPECT_EQ(discovery.next().address.host, "master");
}

TEST(RedisDiscovery, GivesUpWithErrorOfServerOrElseOfSentinels) {
  const LockError wrong_password(ErrorCode::auth_failed, "wrong password");
  auto servers = discovery_with({"a", "b", "c"});
  servers.failed(refused);
  servers.answered({.master = {"master", 3}, .others = {}});
  servers.failed(wrong_password);
  servers.answered({.master = {"master", 3}, .others = {}});
  ASSERT_EQ(servers.next().action, Discovery::Action::give_up);
  EXPECT_EQ(servers.error().code(), ErrorCode::auth_failed);

  // Permanent only if all Sentinels agree: the others may be back soon.
  auto agreed = discovery_with({"a", "b"});
  agreed.failed(wrong_password);
  agreed.failed(wrong_password);
  EXPECT_EQ(agreed.error().code(), ErrorCode::auth_failed);
  EXPECT_THAT(agreed.error().what(), HasSubstr("no Sentinel named a master: wrong password"));
  for (const auto* errors : {"first", "last"}) {
    auto mixed = discovery_with({"a", "b"});
    mixed.failed(std::string_view(errors) == "first" ? wrong_password : refused);
    mixed.failed(std::string_view(errors) == "first" ? refused : wrong_password);
    EXPECT_EQ(mixed.error().code(), ErrorCode::service_unavailable) << errors;
  }
}

Reply texts(std::initializer_list<const char*> words) {
  Reply reply{.kind = Reply::Kind::array};
  for (const auto* word : words) reply.elements.push_back({.kind = Reply::Kind::text, .text = word});
  return reply;
}

TEST(RedisDiscovery, ReadsRepliesOfSentinels) {
  EXPECT_EQ(redis::master_of(texts({"::1", "6380"})), (Address{"::1", 6380}));
  for (const auto& reply :
       {texts({}), texts({"host"}), texts({"", "1"}), texts({"host", "0"}), texts({"host", "65536"}),
        texts({"host", "1x"}), Reply{.kind = Reply::Kind::integer, .integer = 1}}) {
    expect_error(ErrorCode::internal, [&] { (void)redis::master_of(reply); });
  }
  expect_error(ErrorCode::invalid_argument, [] { (void)redis::master_of(Reply{}); });
  const auto refusal = [](const char* text) { return Reply{.kind = Reply::Kind::error, .text = text}; };
  expect_error(ErrorCode::auth_failed, [&] { (void)redis::master_of(refusal("NOAUTH Authentication required.")); });
  expect_error(ErrorCode::invalid_argument, [&] { (void)redis::master_of(refusal("ERR unknown command 'SENTINEL'")); });

  Reply sentinels{.kind = Reply::Kind::array};
  sentinels.elements = {texts({"name", "x", "ip", "10.0.0.2", "port", "26379", "runid"}), texts({"ip", "10.0.0.3"}),
                        texts({"port", "26379", "ip", "10.0.0.4"}), Reply{}};
  EXPECT_THAT(redis::sentinels_of(sentinels), ElementsAre(Address{"10.0.0.2", 26379}, Address{"10.0.0.4", 26379}));
  EXPECT_THAT(redis::sentinels_of(refusal("NOPERM")), ElementsAre());
  sentinels.elements.assign(1000, texts({"ip", "10.0.0.2", "port", "26379"}));
  EXPECT_EQ(redis::sentinels_of(sentinels).size(), 32U) << "a peer must not make us remember any number";
}

TEST(RedisServerAddress, RetriesAtOnceAndThenLessAndLessOften) {
  ServerAddress address{RedisOptions{}};
  const auto now = Clock::time_point(1h);
  EXPECT_LE(address.next_attempt(), now);
  address.failed(now);
  EXPECT_EQ(address.next_attempt(), now)
      << "the first retry is immediate, because the server may have restarted already";
  // Half of the delay is random, so that the clients of a failed server do not reconnect at the same time.
  for (const auto most : {25ms, 50ms, 100ms, 200ms, 400ms, 800ms, 800ms, 800ms}) {
    address.failed(now);
    EXPECT_LE(address.next_attempt(), now + most);
    EXPECT_GE(address.next_attempt(), now + most / 2);
  }
  address.answered();
  address.failed(now);
  EXPECT_EQ(address.next_attempt(), now);
}

}  // namespace
}  // namespace syncguard::testing
