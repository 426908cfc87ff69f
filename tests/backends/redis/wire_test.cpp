// The data in Redis: this library and the TypeScript library store the same, and read each other's data.

#include "scripts_at_time.hpp"
#include "servers/redis_server.hpp"
#include "support/expect_error.hpp"
#include "support/is_granted.hpp"
#include "support/liveness_cases.hpp"
#include "support/long_timeouts.hpp"
#include "support/vectors.hpp"

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
  Locks locks = open_with_long_timeout(server.url());
  // Makes the same fences as the TypeScript library, and stores no label.
  Locks counting = open_with_long_timeout(server.url("&fences=counter"), {.holder = ""});
};

// All keys on the server, sorted.
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

std::string lock_document(const std::string& id, const std::string& more = "") {
  const auto now =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch());
  return R"({"key":"key","lockId":")" + id + R"(","fence":"000000000000007","acquiredAtMs":)" +
         std::to_string(now.count()) + R"(,"expiresAtMs":)" + std::to_string((now + 1h).count()) + more + "}";
}

TEST_F(RedisWire, ForeignIdNeitherReleasesNorExtendsNorFindsLock) {
  const auto holder = LockId::generate();
  const auto other = LockId::generate();
  const auto document = lock_document(holder.str());
  server.command({"SET", "syncguard:key", document});
  // The state after an expiry: the key has a new holder, and the index of the old one still exists.
  server.command({"SET", "syncguard:id:" + other.str(), "syncguard:key"});
  EXPECT_FALSE(locks.extend(other, 1min));
  EXPECT_FALSE(locks.admin().owns(other));
  EXPECT_FALSE(locks.lookup(other));
  EXPECT_FALSE(locks.release(other));
  EXPECT_EQ(server.command({"GET", "syncguard:key"}), document);
  server.command({"SET", "syncguard:id:" + holder.str(), "syncguard:key"});
  EXPECT_TRUE(locks.admin().owns(holder));
  EXPECT_TRUE(locks.release(holder));
}

TEST_F(RedisWire, MalformedDocumentsKeepConnectionOpen) {
  const auto id = LockId::generate().str();
  std::string nested;
  for (int i = 0; i < 800; ++i) nested += '[';
  nested += std::string(800, ']');
  const std::string huge(std::size_t{8} * 1024 * 1024, 'x');
  auto deep_key = lock_document(id);
  deep_key.replace(deep_key.find(R"("key":"key")"), std::string(R"("key":"key")").size(), R"("key":)" + nested);
  (void)locks.is_locked("other");
  const auto connections = server.connections();
  for (const auto& document :
       {deep_key, lock_document(id, R"(,"more":")" + huge + '"'), std::string(100'000, '['), nested, huge,
        R"({"key":")" + std::string(100'000, 'k') + R"(","lockId":")" + id + R"(","expiresAtMs":9e300})",
        R"({"key":{},"lockId":")" + id + R"(","fence":[],"acquiredAtMs":{},"expiresAtMs":9e300})"}) {
    server.command({"SET", "syncguard:key", document});
    server.command({"SET", "syncguard:id:" + id, "syncguard:key"});
    const auto attempt = [](auto function) {
      const auto error = error_of(function);
      EXPECT_TRUE(!error || (error->code() == ErrorCode::internal)) << error->what();
    };
    attempt([&] { (void)locks.try_acquire("key"); });
    attempt([&] { (void)locks.is_locked("key"); });
    attempt([&] { (void)locks.lookup("key"); });
    attempt([&] { (void)locks.lookup(LockId(id)); });
    attempt([&] { (void)locks.extend(LockId(id), 1s); });
    attempt([&] { (void)locks.release(LockId(id)); });
    EXPECT_EQ(server.connections(), connections) << document.substr(0, 60);
  }
}

TEST_F(RedisWire, StoresSameDocumentsAsTypeScript) {
  const auto vectors = load_vectors("wire").at("redis");
  for (const auto& recorded : vectors) {
    server.command({"FLUSHALL"});
    const auto key = recorded.at("key").get<std::string>();
    const std::string their_id = recorded.at("acquire").at("lockId");
    auto lease = counting.acquire(key, {.ttl = 30s});
    // The document that acquire wrote. The one that extend wrote is compared below.
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
        // The ttl and the tolerance, minus the time that has passed.
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

TEST_F(RedisWire, ReadsDocumentsOfTypeScript) {
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
        // The recorded bytes with a new expiry, because the recorded one has passed.
        const auto recorded_expiry = std::to_string(recorded.at("extend").at("expiresAtMs").get<std::int64_t>());
        value = with_id(value, recorded_expiry, std::to_string(expires_at.time_since_epoch().count()));
      }
      server.command({"SET", name, value});
    }
    EXPECT_TRUE(locks.is_locked(key));
    EXPECT_FALSE(is_granted(locks.try_acquire(key)));
    const auto found = locks.admin().get_by_id_raw(their_id);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->key, Key(key));
    EXPECT_EQ(found->expires_at, expires_at);
    EXPECT_EQ(found->fence.str(), recorded.at("acquire").at("fence").get<std::string>());
    EXPECT_EQ(locks.admin().get_by_key_raw(key), found);
    EXPECT_TRUE(locks.extend(their_id, 30s));
    EXPECT_TRUE(locks.release(their_id));
    EXPECT_FALSE(locks.is_locked(key));
    // The fence counter continues.
    EXPECT_EQ(counting.acquire(key).fence(), Fence(2));
    EXPECT_GT(locks.acquire(key).fence(), Fence(2));
  }
}

// The TypeScript library ignores the field.
TEST_F(RedisWire, LabelOfHolderIsAFieldOfTheDocument) {
  auto labeled = open_with_long_timeout(server.url(), {.holder = "web-3/\"4711\""});
  auto lease = labeled.acquire("key");
  EXPECT_EQ(json::parse(server.command({"GET", "syncguard:key"})).at("holder"), "web-3/\"4711\"");
  EXPECT_TRUE(lease.extend(45s));
  EXPECT_EQ(json::parse(server.command({"GET", "syncguard:key"})).at("holder"), "web-3/\"4711\"");
}

TEST_F(RedisWire, ForeignValueInPlaceOfLabelCountsAsNone) {
  for (const std::string& value : {std::string("7"), std::string("null"), std::string("{\"a\":[]}"),
                                   "\"" + std::string(257, 'x') + "\"", std::string(R"("a\u001b[2J")")}) {
    const auto id = LockId::generate();
    server.command({"SET", "syncguard:key", lock_document(id.str(), ",\"holder\":" + value)});
    const auto found = locks.lookup(Key("key"));
    ASSERT_TRUE(found) << value;
    EXPECT_EQ(found->holder, "") << value;
  }
}

// Other names that begin with the prefix, and documents of locks in the wrong place.
TEST_F(RedisWire, ListLeavesOutWhatIsNoLock) {
  const auto lease = locks.acquire("held");
  server.command({"SET", "syncguard:misplaced", lock_document(LockId::generate().str())});
  server.command({"SET", "syncguard:text", "text"});
  server.command({"SET", "syncguard:number", "17"});
  server.command({"SET", "syncguard:object", "{}"});
  server.command({"RPUSH", "syncguard:list", "element"});
  std::vector<std::string> found;
  std::string cursor;
  do {
    const auto page = locks.admin().list({.limit = 2, .cursor = cursor});
    for (const auto& lock : page.locks) found.push_back(lock.key.str());
    cursor = page.cursor;
  } while (!cursor.empty());
  EXPECT_EQ(found, (std::vector<std::string>{"held"}));
  expect_error(ErrorCode::invalid_argument, [&] { (void)locks.admin().list({.cursor = "key"}); });
}

TEST_F(RedisWire, RaisedCounterNeverExpires) {
  EXPECT_EQ(locks.admin().raise_fence("key", Fence(7)), Fence(7));
  EXPECT_EQ(server.command({"GET", "syncguard:fence:syncguard:key"}), "7");
  EXPECT_EQ(server.command({"PTTL", "syncguard:fence:syncguard:key"}), "-1");
  EXPECT_EQ(counting.acquire("key").fence(), Fence(8));
  server.command({"SET", "syncguard:fence:syncguard:key", "damaged"});
  expect_error(ErrorCode::internal, [&] { (void)locks.admin().raise_fence("key", Fence(100)); });
  EXPECT_EQ(server.command({"GET", "syncguard:fence:syncguard:key"}), "damaged");
}

TEST_F(RedisWire, ReadsEquivalentJson) {
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
    const auto found = locks.admin().get_by_id_raw(LockId(id));
    ASSERT_TRUE(found) << number;
    EXPECT_EQ(found->key, Key("key"));
    EXPECT_EQ(found->expires_at.time_since_epoch(), std::chrono::seconds(expires_at));
    EXPECT_FALSE(is_granted(locks.try_acquire("key")));
    EXPECT_TRUE(locks.release(LockId(id)));
  }
}

// Runs scripts on a lock of the key "key" and the id `id`, at a chosen time. The id `next` waits for it, and `first`
// has its turn.
struct RedisLiveness : RedisWire {
  // The reply of the script.
  std::string run(int expires_at, int now, const redis::Script& script, const std::vector<std::string>& arguments) {
    server.command({"FLUSHALL"});
    server.command({"SET", lock,
                    R"({"key":"key","lockId":")" + id +
                        R"(","fence":"000000000000007","acquiredAtMs":1,"expiresAtMs":)" + std::to_string(expires_at) +
                        "}"});
    server.command({"SET", index, lock});
    server.command({"ZADD", queue, place, next});
    server.command({"PEXPIRE", queue, "3600000"});
    const auto text = at_time(std::to_string(now / 1000), std::to_string(now % 1000 * 1000), script);
    std::vector<std::string> command{"EVAL", text};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return server.command(command);
  }
  // Of an acquire with this id.
  [[nodiscard]] std::vector<std::string> acquire_arguments(const std::string& of) const {
    return {"5",
            lock,
            "syncguard:fence:" + lock,
            turn,
            "syncguard:id:" + of,
            queue,
            of,
            "1000",
            "2000",
            R"("key")",
            "counter",
            "",
            "",
            "waits"};
  }

  const std::string id = std::string(LockId::length, 'A');
  const std::string first = std::string(LockId::length, 'B');
  const std::string next = std::string(LockId::length, 'C');
  const std::string lock = "syncguard:key";
  const std::string index = "syncguard:id:" + id;
  const std::string turn = "syncguard-turn:key";
  const std::string queue = "syncguard-queue:key";
  const std::string place = "13600000000001";
};

TEST_F(RedisLiveness, EveryScriptAgrees) {
  const auto& scripts = redis::scripts();
  struct Use {
    const redis::Script& script;
    std::vector<std::string> arguments;
    // What the reply begins with.
    std::string if_live;
    std::string if_dead;
  };
  const std::vector<Use> uses = {{scripts.acquire, acquire_arguments(first), "0\n", "1\n"},
                                 // The same fence, or the next one.
                                 {scripts.acquire, acquire_arguments(id), "1\n7\n", "1\n1\n"},
                                 {scripts.release, {"1", index, id}, "1", "-2"},
                                 {scripts.extend, {"1", index, id, "1000", "2000"}, "1\n", "-2"},
                                 {scripts.is_locked, {"1", lock}, "1", "0"},
                                 {scripts.lookup_key, {"1", lock}, "1\n", "0"},
                                 {scripts.lookup_id, {"1", index, id}, "1\n", "-2"},
                                 {scripts.break_lock, {"1", lock, "000000000000007", "syncguard:id:"}, "1", "0"}};
  std::set<std::string> covered;
  for (const auto& [expires_at, now, live] : liveness_cases) {
    SCOPED_TRACE(std::to_string(expires_at) + " at " + std::to_string(now));
    for (const auto& [script, arguments, if_live, if_dead] : uses) {
      const auto reply = run(expires_at, now, script, arguments);
      EXPECT_THAT(reply, ::testing::StartsWith(live ? if_live : if_dead)) << script.text;
      covered.insert(script.hash);
    }
    const auto state = run(expires_at, now, scripts.inspect, {"3", lock, "syncguard:fence:" + lock, queue});
    EXPECT_EQ(state.find(id) != std::string::npos, live) << state;
    const auto page =
        run(expires_at, now, scripts.list, {"1", index, "0", lock, "10", "syncguard:", "syncguard-queue:"});
    EXPECT_EQ(page.find("000000000000007") != std::string::npos, live) << page;
    // A turn is passed on if the key is free. The next waiter does not listen, so that it is removed as dead.
    const std::string give_turn = "redis.call('SET', KEYS[2], ARGV[1] .. ' 8 9', 'PX', 300)\n";
    const redis::Script leave(give_turn + scripts.leave.text);
    run(expires_at, now, leave, {"3", queue, turn, lock, first, "syncguard-wake:"});
    EXPECT_EQ(server.command({"ZCARD", queue}) == "1", live);
    // A waiter waits while the key is held, and otherwise tries.
    const auto joined = run(expires_at, now, scripts.join, {"3", queue, turn, lock, first, "50", ""});
    EXPECT_EQ(!joined.starts_with("-1\n"), live) << joined;
    const auto seen = run(expires_at, now, scripts.look, {"3", lock, turn, queue, next, place});
    EXPECT_EQ(!seen.starts_with("-1\n"), live) << seen;
  }
  for (const auto* const script : {&scripts.inspect, &scripts.list, &scripts.leave, &scripts.join, &scripts.look}) {
    covered.insert(script->hash);
  }

  for (const auto& [expires_at, now, removable] : removal_cases) {
    SCOPED_TRACE(std::to_string(expires_at) + " at " + std::to_string(now));
    run(expires_at, now, scripts.remove_dead, {"1", lock, "syncguard:id:"});
    EXPECT_EQ(server.command({"EXISTS", lock}) == "0", removable);
  }
  covered.insert(scripts.remove_dead.hash);

  // The others do not compare times of locks.
  const std::vector<const redis::Script*> all = {
      &scripts.acquire,    &scripts.release,     &scripts.extend,      &scripts.is_locked,
      &scripts.lookup_key, &scripts.lookup_id,   &scripts.remove_dead, &scripts.join,
      &scripts.look,       &scripts.leave,       &scripts.list,        &scripts.inspect,
      &scripts.break_lock, &scripts.raise_fence, &scripts.probe,       &scripts.highest_counter};
  EXPECT_EQ(sizeof(redis::Scripts), all.size() * sizeof(redis::Script)) << "a script is missing from this test";
  for (const auto* const script : all) {
    const bool compares = script->text.find("expiresAtMs >") != std::string::npos ||
                          script->text.find("expiresAtMs <= live_after") != std::string::npos ||
                          script->text.find("expiresAtMs < live_after") != std::string::npos;
    EXPECT_EQ(covered.contains(script->hash), compares) << script->text;
  }
}

TEST_F(RedisWire, ExcessiveReservationIsIgnored) {
  const auto id = LockId::generate().str();
  server.command({"SET", "syncguard-turn:key", id});
  EXPECT_TRUE(locks.try_acquire("key")) << "not a turn";
  server.command({"SET", "syncguard-turn:key", id + " 13600000000001 1700000000000"});
  EXPECT_TRUE(locks.try_acquire("key")) << "a reservation that ended years ago, without expiry";
  server.command({"SET", "syncguard-turn:key", id + " 13600000000001 900000000000000", "PX", "3600000"});
  EXPECT_TRUE(locks.try_acquire("key")) << "a reservation for years, as after the server's clock was set back";
}

TEST_F(RedisWire, ExtendKeepsUnknownFields) {
  const auto lease = locks.acquire("key");
  auto document = json::parse(server.command({"GET", "syncguard:key"}));
  document["owner"] = "another-program";
  server.command({"SET", "syncguard:key", document.dump()});
  ASSERT_TRUE(locks.extend(lease.id(), 10s));
  EXPECT_EQ(json::parse(server.command({"GET", "syncguard:key"})).at("owner"), "another-program");
}

TEST_F(RedisWire, NeverOverwritesForeignValue) {
  for (const std::string foreign : {"text", "[]", "{}", R"({"lockId":1,"expiresAtMs":1})", R"({"lockId":"x"})", "",
                                    R"({"lockId":"x","expiresAtMs":NaN})", R"({"lockId":"x","expiresAtMs":1e999})"}) {
    server.command({"SET", "syncguard:key", foreign});
    expect_error(ErrorCode::internal, [&] { (void)locks.try_acquire("key"); });
    expect_error(ErrorCode::internal, [&] { (void)locks.is_locked("key"); });
    expect_error(ErrorCode::internal, [&] { (void)locks.lookup("key"); });
    EXPECT_EQ(server.command({"GET", "syncguard:key"}), foreign);
    EXPECT_EQ(keys_of(server).size(), 1U) << "no other key must be written";
  }
}

TEST_F(RedisWire, ValueOfAnotherTypeIsLeftAlone) {
  server.command({"LPUSH", "syncguard:key", "x"});
  expect_error(ErrorCode::invalid_argument, [&] { (void)locks.try_acquire("key"); });
  EXPECT_THAT(keys_of(server), ::testing::ElementsAre("syncguard:key"));
  server.command({"DEL", "syncguard:key"});

  server.command({"LPUSH", "syncguard:fence:syncguard:key", "x"});
  expect_error(ErrorCode::invalid_argument, [&] { (void)locks.try_acquire("key"); });
  EXPECT_THAT(keys_of(server), ::testing::ElementsAre("syncguard:fence:syncguard:key"));
}

TEST_F(RedisWire, NonNumericCounterGrantsNothing) {
  for (const std::string broken : {"text", "1.5", "1e3", "0x10", " 7", "nan", "-3", "900000000000000"}) {
    server.command({"SET", "syncguard:fence:syncguard:key", broken});
    expect_error(ErrorCode::internal, [&] { (void)locks.try_acquire("key"); });
    EXPECT_EQ(server.command({"GET", "syncguard:fence:syncguard:key"}), broken);
    EXPECT_EQ(keys_of(server).size(), 1U);
  }
}

TEST_F(RedisWire, RejectsKeysThatCollideWithIndexesAndCounters) {
  const auto lease = locks.acquire("key");
  const std::string id = lease.id().str();
  expect_error(ErrorCode::invalid_argument, [&] { (void)locks.acquire("id:" + id); });
  expect_error(ErrorCode::invalid_argument, [&] { (void)locks.is_locked("id:" + id); });
  expect_error(ErrorCode::invalid_argument, [&] { (void)locks.lookup("fence:syncguard:key"); });
  // Similar keys do not collide.
  EXPECT_TRUE(locks.try_acquire("id:" + id + "x"));
  EXPECT_TRUE(locks.try_acquire("id:short"));
  EXPECT_TRUE(locks.try_acquire("fence:other:key"));

  auto bare = open_with_long_timeout(server.plain_url("?prefix="));
  expect_error(ErrorCode::invalid_argument, [&] { (void)bare.acquire("fence:key"); });
  expect_error(ErrorCode::invalid_argument, [&] { (void)bare.acquire("-queue:key"); });
  const auto unprefixed = bare.acquire("key");
  EXPECT_EQ(server.command({"EXISTS", "key"}), "1");
}

TEST_F(RedisWire, LongPrefixesHashNamesAndPollInsteadOfQueueing) {
  const std::string prefix(900, 'p');
  auto mine = open_with_long_timeout(server.plain_url("?prefix=" + prefix));
  auto other = open_with_long_timeout(server.plain_url("?prefix=" + prefix));
  auto lease = mine.acquire(std::string(512, 'k'));
  EXPECT_FALSE(is_granted(other.try_acquire(std::string(512, 'k'))));
  std::thread waiting([&] { EXPECT_TRUE(other.acquire(std::string(512, 'k'), {.wait = {.retry_delay = 10ms}})); });
  std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(lease.release());
  waiting.join();
  for (const auto& name : keys_of(server)) EXPECT_LE(name.size(), 1000U);

  expect_error(ErrorCode::invalid_argument,
               [&] { (void)open_with_long_timeout(server.plain_url("?prefix=" + std::string(990, 'p'))); });
  expect_error(ErrorCode::invalid_argument, [&] { (void)open_with_long_timeout(server.plain_url("?prefix=%ff")); });
}

TEST_F(RedisWire, CleanupKeepsCounter) {
  auto cleaning = open_with_long_timeout(server.url("&cleanup_in_is_locked=true"));
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
  EXPECT_EQ(keys_of(server).size(), 3U) << "is_locked() must not write if cleanup is off";
  EXPECT_FALSE(cleaning.is_locked("key"));
  // The second call waits for the cleanup, which was sent before it on the same connection.
  EXPECT_FALSE(cleaning.is_locked("key"));
  EXPECT_THAT(keys_of(server), ::testing::ElementsAre("syncguard:fence:syncguard:key"));
}

}  // namespace
}  // namespace syncguard::testing
