// What is stored in Redis, and that what the other library stored is understood.

#include "expect_error.hpp"
#include "liveness_cases.hpp"
#include "patience.hpp"
#include "redis_lua.hpp"
#include "servers/redis_server.hpp"
#include "unit/vectors.hpp"

#include <syncguard/syncguard.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

struct RedisWire : public ::testing::Test {
  RedisServer server;
  Locks locks = open_patiently(server.url());
};

// All keys of the server's, sorted.
std::vector<std::string> keys_of(RedisServer& server) {
  std::istringstream lines(server.command({"KEYS", "*"}));
  std::vector<std::string> keys;
  for (std::string line; std::getline(lines, line);) keys.push_back(line);
  std::ranges::sort(keys);
  return keys;
}

std::string with_id(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

std::set<std::string> fields_of(const json& document) {
  std::set<std::string> names;
  for (const auto& [name, value] : document.items()) {
    names.insert(name + ' ' + (value.is_number_integer() ? "integer" : value.type_name()));
  }
  return names;
}

TEST_F(RedisWire, StoresWhatTheOtherLibraryStores) {
  const auto vectors = load_vectors("wire").at("redis");
  for (const auto& recorded : vectors) {
    server.command({"FLUSHALL"});
    const auto key = recorded.at("key").get<std::string>();
    const std::string their_id = recorded.at("acquire").at("lockId");
    auto lease = locks.acquire(key, {.ttl = 30s});
    // As acquire wrote it; below, as extend did.
    const auto lock_name = recorded.at("stored").at("syncguard:id:" + their_id).at("value").get<std::string>();
    const auto first = json::parse(server.command({"GET", lock_name}));
    EXPECT_EQ(fields_of(first),
              fields_of(json::parse(recorded.at("stored").at(lock_name).at("value").get<std::string>())));
    EXPECT_EQ(first.at("expiresAtMs").get<std::int64_t>() - first.at("acquiredAtMs").get<std::int64_t>(), 30'000);
    const auto extended_after = std::chrono::steady_clock::now();
    ASSERT_TRUE(lease.extend(45s));
    const std::string our_id = lease.id().str();
    EXPECT_EQ(lease.fence().str(), recorded.at("acquire").at("fence").get<std::string>());

    std::vector<std::string> expected_keys;
    for (const auto& [their_name, theirs] : recorded.at("stored").items()) {
      const auto name = with_id(their_name, their_id, our_id);
      expected_keys.push_back(name);
      const auto value = server.command({"GET", name});
      const auto expected = theirs.at("value").get<std::string>();
      if (expected.starts_with('{')) {
        const auto ours = json::parse(value);
        const auto document = json::parse(expected);
        EXPECT_EQ(fields_of(ours), fields_of(document));
        EXPECT_EQ(ours.at("key"), document.at("key"));
        EXPECT_EQ(ours.at("fence"), document.at("fence"));
        EXPECT_EQ(ours.at("lockId"), our_id);
        EXPECT_EQ(ours.at("acquiredAtMs"), first.at("acquiredAtMs"));
        EXPECT_EQ(ours.at("expiresAtMs").get<std::int64_t>(),
                  locks.lookup(Key(key))->expires_at.time_since_epoch().count());
      } else {
        EXPECT_EQ(value, expected) << name;
      }
      const auto pttl = std::stoll(server.command({"PTTL", name}));
      if (theirs.at("pttl_set").get<bool>()) {
        // The ttl and the tolerance, but for what has passed of them.
        const auto passed =
            std::chrono::ceil<std::chrono::milliseconds>(std::chrono::steady_clock::now() - extended_after);
        EXPECT_GE(pttl, 46'000 - passed.count() - 1) << name;
        EXPECT_LE(pttl, 46'000) << name;
      } else {
        EXPECT_EQ(pttl, -1) << name << " must never expire";
      }
    }
    std::ranges::sort(expected_keys);
    EXPECT_EQ(keys_of(server), expected_keys);

    ASSERT_TRUE(lease.release());
    EXPECT_EQ(keys_of(server), recorded.at("afterRelease").get<std::vector<std::string>>());
  }
}

TEST_F(RedisWire, UnderstandsWhatTheOtherLibraryStored) {
  const auto vectors = load_vectors("wire").at("redis");
  for (const auto& recorded : vectors) {
    server.command({"FLUSHALL"});
    const auto key = recorded.at("key").get<std::string>();
    const LockId their_id(recorded.at("acquire").at("lockId").get<std::string>());
    const auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
    const auto expires_at = now + 60s;
    for (const auto& [name, theirs] : recorded.at("stored").items()) {
      auto value = theirs.at("value").get<std::string>();
      if (value.starts_with('{')) {
        // Their own bytes, but for the time, which is over.
        const auto recorded_expiry = std::to_string(recorded.at("extend").at("expiresAtMs").get<std::int64_t>());
        value = with_id(value, recorded_expiry, std::to_string(expires_at.time_since_epoch().count()));
      }
      server.command({"SET", name, value});
    }
    EXPECT_TRUE(locks.is_locked(key));
    EXPECT_FALSE(locks.try_acquire(key));
    const auto found = locks.get_by_id_raw(their_id);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->key, Key(key));
    EXPECT_EQ(found->expires_at, expires_at);
    EXPECT_EQ(found->fence.str(), recorded.at("acquire").at("fence").get<std::string>());
    EXPECT_EQ(locks.get_by_key_raw(key), found);
    EXPECT_TRUE(locks.extend(their_id, 30s));
    EXPECT_TRUE(locks.release(their_id));
    EXPECT_FALSE(locks.is_locked(key));
    // Its counter goes on.
    EXPECT_EQ(locks.acquire(key).fence(), Fence(2));
  }
}

TEST_F(RedisWire, UnderstandsOtherSpellingsOfTheSameDocument) {
  const auto id = LockId::generate().str();
  const auto expires_at =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch() + 60s)
          .count();
  for (const auto& number :
       {std::to_string(expires_at) + "000", std::to_string(expires_at) + "000.0", std::to_string(expires_at) + "e3"}) {
    server.command({"SET", "syncguard:key",
                    "{ \"fence\" : \"000000000000004\",\n \"expiresAtMs\": " + number +
                        ", \"other\": [1, {}], \"acquiredAtMs\":1, \"lockId\":\"" + id +
                        "\", \"key\":\"k\\u0065y\" }"});
    server.command({"SET", "syncguard:id:" + id, "syncguard:key"});
    const auto found = locks.get_by_id_raw(LockId(id));
    ASSERT_TRUE(found) << number;
    EXPECT_EQ(found->key, Key("key"));
    EXPECT_EQ(found->expires_at.time_since_epoch(), std::chrono::seconds(expires_at));
    EXPECT_FALSE(locks.try_acquire("key"));
    EXPECT_TRUE(locks.release(LockId(id)));
  }
}

TEST_F(RedisWire, TheScriptsKnowWhenALockIsAliveAsWeDo) {
  for (const auto& [expires_at, now, live] : liveness_cases) {
    const auto script = std::string(redis::lua::lock) +
                        "return is_live({expiresAtMs = tonumber(ARGV[1])}, tonumber(ARGV[2])) and 1 or 0";
    EXPECT_EQ(server.command({"EVAL", script, "0", std::to_string(expires_at), std::to_string(now)}), live ? "1" : "0")
        << expires_at << " at " << now;
  }
}

TEST_F(RedisWire, AReservationThatLastsTooLongReservesNothing) {
  server.command({"SET", "syncguard-turn:key", "somebody"});
  EXPECT_TRUE(locks.try_acquire("key")) << "without an end";
  server.command({"SET", "syncguard-turn:key", "somebody", "PX", "3600000"});
  EXPECT_TRUE(locks.try_acquire("key")) << "for an hour, as when the server's clock was set back";
}

TEST_F(RedisWire, AnExtendKeepsWhatItDoesNotKnow) {
  const auto lease = locks.acquire("key");
  auto document = json::parse(server.command({"GET", "syncguard:key"}));
  document["owner"] = "somebody";
  server.command({"SET", "syncguard:key", document.dump()});
  ASSERT_TRUE(locks.extend(lease.id(), 10s));
  EXPECT_EQ(json::parse(server.command({"GET", "syncguard:key"})).at("owner"), "somebody");
}

TEST_F(RedisWire, NeverOverwritesWhatIsNoLock) {
  for (const std::string foreign : {"text", "[]", "{}", R"({"lockId":1,"expiresAtMs":1})", R"({"lockId":"x"})", ""}) {
    server.command({"SET", "syncguard:key", foreign});
    expect_error(ErrorCode::internal, [&] { (void)locks.try_acquire("key"); });
    expect_error(ErrorCode::internal, [&] { (void)locks.is_locked("key"); });
    expect_error(ErrorCode::internal, [&] { (void)locks.lookup("key"); });
    EXPECT_EQ(server.command({"GET", "syncguard:key"}), foreign);
    EXPECT_EQ(keys_of(server).size(), 1U) << "nothing was written";
  }
}

TEST_F(RedisWire, SomethingOfAnotherTypeIsLeftAlone) {
  server.command({"LPUSH", "syncguard:key", "x"});
  expect_error(ErrorCode::invalid_argument, [&] { (void)locks.try_acquire("key"); });
  EXPECT_THAT(keys_of(server), ::testing::ElementsAre("syncguard:key"));
  server.command({"DEL", "syncguard:key"});

  server.command({"LPUSH", "syncguard:fence:syncguard:key", "x"});
  expect_error(ErrorCode::invalid_argument, [&] { (void)locks.try_acquire("key"); });
  EXPECT_THAT(keys_of(server), ::testing::ElementsAre("syncguard:fence:syncguard:key"));
}

TEST_F(RedisWire, ACounterThatIsNoNumberGrantsNothing) {
  for (const std::string broken : {"text", "1.5", "1e3", "0x10", " 7", "nan", "-3", "900000000000000"}) {
    server.command({"SET", "syncguard:fence:syncguard:key", broken});
    expect_error(ErrorCode::internal, [&] { (void)locks.try_acquire("key"); });
    EXPECT_EQ(server.command({"GET", "syncguard:fence:syncguard:key"}), broken);
    EXPECT_EQ(keys_of(server).size(), 1U);
  }
}

TEST_F(RedisWire, RefusesKeysThatWouldTakeThePlaceOfIndexesAndCounters) {
  const auto lease = locks.acquire("key");
  const std::string id = lease.id().str();
  expect_error(ErrorCode::invalid_argument, [&] { (void)locks.acquire("id:" + id); });
  expect_error(ErrorCode::invalid_argument, [&] { (void)locks.is_locked("id:" + id); });
  expect_error(ErrorCode::invalid_argument, [&] { (void)locks.lookup("fence:syncguard:key"); });
  // Near by is not there.
  EXPECT_TRUE(locks.try_acquire("id:" + id + "x"));
  EXPECT_TRUE(locks.try_acquire("id:short"));
  EXPECT_TRUE(locks.try_acquire("fence:other:key"));

  auto bare = open_patiently(server.plain_url("?prefix="));
  expect_error(ErrorCode::invalid_argument, [&] { (void)bare.acquire("fence:key"); });
  expect_error(ErrorCode::invalid_argument, [&] { (void)bare.acquire("-queue:key"); });
  const auto unprefixed = bare.acquire("key");
  EXPECT_EQ(server.command({"EXISTS", "key"}), "1");
}

TEST_F(RedisWire, LongPrefixesHashWhatDoesNotFitAndPollInsteadOfQueueing) {
  const std::string prefix(900, 'p');
  auto mine = open_patiently(server.plain_url("?prefix=" + prefix));
  auto other = open_patiently(server.plain_url("?prefix=" + prefix));
  auto lease = mine.acquire(std::string(512, 'k'));
  EXPECT_FALSE(other.try_acquire(std::string(512, 'k')));
  std::thread waiting([&] { EXPECT_TRUE(other.acquire(std::string(512, 'k'), {.wait = {.retry_delay = 10ms}})); });
  std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(lease.release());
  waiting.join();
  for (const auto& name : keys_of(server)) EXPECT_LE(name.size(), 1000U);

  expect_error(ErrorCode::invalid_argument,
               [&] { (void)open_patiently(server.plain_url("?prefix=" + std::string(990, 'p'))); });
  expect_error(ErrorCode::invalid_argument, [&] { (void)open_patiently(server.plain_url("?prefix=%ff")); });
}

TEST_F(RedisWire, CleanUpLeavesTheCounterAlone) {
  auto cleaning = open_patiently(server.url("&cleanup_in_is_locked=true"));
  { const auto lease = locks.acquire("key"); }
  const auto long_ago = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now()) - 1min;
  const auto id = LockId::generate();
  const json document = {{"lockId", id.str()},
                         {"key", "key"},
                         {"fence", "000000000000001"},
                         {"acquiredAtMs", 1},
                         {"expiresAtMs", long_ago.time_since_epoch().count()}};
  server.command({"SET", "syncguard:key", document.dump()});
  server.command({"SET", "syncguard:id:" + id.str(), "syncguard:key"});
  EXPECT_FALSE(locks.is_locked("key"));
  EXPECT_EQ(keys_of(server).size(), 3U) << "without cleanup it is read only";
  EXPECT_FALSE(cleaning.is_locked("key"));
  // Behind it on the same connection.
  EXPECT_FALSE(cleaning.is_locked("key"));
  EXPECT_THAT(keys_of(server), ::testing::ElementsAre("syncguard:fence:syncguard:key"));
}

}  // namespace
}  // namespace syncguard::testing
