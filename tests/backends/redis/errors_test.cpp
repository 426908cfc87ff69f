// Errors of Redis servers, and of peers that only pretend to be one. Covers each row of the contract's error table.

#include "servers/fake_redis.hpp"
#include "servers/loopback.hpp"
#include "servers/redis_server.hpp"
#include "support/eventually.hpp"
#include "support/expect_error.hpp"
#include "support/long_timeouts.hpp"

#include "backends/redis/errors.hpp"

#include <syncguard/async.hpp>
#include <syncguard/redis.hpp>
#include <syncguard/syncguard.hpp>

#include <asio/use_future.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <string>
#include <thread>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

LockError refusal(const std::string& url) {
  auto locks = open_with_long_timeout(url);
  const auto error = error_of([&] { (void)locks.try_acquire("secret key"); });
  if (!error) throw std::runtime_error("the acquire succeeded");
  EXPECT_THAT(error->what(), Not(HasSubstr("secret")));
  EXPECT_THAT(error->what(), Not(HasSubstr("p@ss")));
  return *error;
}

ErrorCode code_of_refusal(const std::string& url) { return refusal(url).code(); }

std::string at(int port) { return "127.0.0.1:" + std::to_string(port); }

TEST(RedisErrors, ConnectionRefused) {
  const LoopbackSocket unreachable;
  EXPECT_EQ(code_of_refusal("redis://" + at(unreachable.port())), ErrorCode::service_unavailable);
  EXPECT_EQ(code_of_refusal("redis+unix:/nowhere/redis.sock"), ErrorCode::service_unavailable);
}

TEST(RedisErrors, UnknownHost) {
  EXPECT_EQ(code_of_refusal("redis://no.such.host.invalid?operation_timeout=20s&connect_timeout=20s"),
            ErrorCode::service_unavailable);
}

TEST(RedisErrors, WrongUserOrPassword) {
  const RedisServer server;
  EXPECT_EQ(code_of_refusal("redis://locker:wrong-secret@" + at(server.port())), ErrorCode::auth_failed);
  EXPECT_EQ(code_of_refusal("redis://unknown:p%40ss%3Aw%2Frd%3F@" + at(server.port())), ErrorCode::auth_failed);
}

TEST(RedisErrors, MissingPassword) {
  RedisServer server;
  server.command({"CONFIG", "SET", "requirepass", "x"});
  EXPECT_EQ(code_of_refusal(server.plain_url()), ErrorCode::auth_failed);
}

TEST(RedisErrors, UserMayNotRunCommand) {
  RedisServer server;
  server.command({"ACL", "SETUSER", "locker", "-evalsha"});
  EXPECT_EQ(code_of_refusal(server.url()), ErrorCode::auth_failed);
}

TEST(RedisErrors, UserMayNotRunCommandInsideScript) {
  for (const std::string command : {"incr", "set", "mget", "time"}) {
    RedisServer server;
    server.command({"ACL", "SETUSER", "locker", "-" + command});
    EXPECT_EQ(code_of_refusal(server.url()), ErrorCode::auth_failed) << command;
    EXPECT_EQ(server.command({"EXISTS", "syncguard:secret key"}), "0")
        << command << ": the failed acquire must not leave a lock behind";
  }
}

TEST(RedisErrors, UserMayNotAccessKeys) {
  RedisServer server;
  server.command({"ACL", "SETUSER", "locker", "resetkeys", "~other:*"});
  EXPECT_EQ(code_of_refusal(server.url()), ErrorCode::auth_failed);
}

TEST(RedisErrors, UserMayNotAccessKeysFoundByScript) {
  RedisServer server;
  auto owner = open_with_long_timeout(server.plain_url());
  const auto lease = owner.acquire("secret key");
  // The user may access the index, but not the lock it refers to.
  server.command({"ACL", "SETUSER", "locker", "resetkeys", "~syncguard:id:*"});
  auto locks = open_with_long_timeout(server.url());
  const auto error = error_of([&] { (void)locks.release(lease.id()); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::auth_failed) << error->what();
}

TEST(RedisErrors, CauseDoesNotContainPassword) {
  RedisServer server({.configuration = {"rename-command AUTH NOTAUTH"}});
  const auto error = refusal(server.url());
  EXPECT_EQ(error.code(), ErrorCode::auth_failed);
  EXPECT_FALSE(error.context().cause);
}

TEST(RedisErrors, ServerInProtectedMode) {
  EXPECT_EQ(redis::server_error("DENIED Redis is running in protected mode").code(), ErrorCode::auth_failed);
}

TEST(RedisErrors, UserWithoutChannelsReleasesAndPolls) {
  RedisServer server;
  server.command({"ACL", "SETUSER", "locker", "resetchannels"});
  auto one = open_with_long_timeout(server.url());
  auto other = open_with_long_timeout(server.url());
  for (int turn = 0; turn < 3; ++turn) {
    auto lease = one.acquire("key");
    std::thread waiting([&] { EXPECT_TRUE(other.acquire("key", {.wait = {.retry_delay = 20ms}})); });
    std::this_thread::sleep_for(50ms);
    EXPECT_TRUE(lease.release());
    waiting.join();
  }
}

TEST(RedisErrors, ReleaseWithoutChannelPermissionSucceedsDespiteWaiter) {
  RedisServer server;
  auto waiter = open_with_long_timeout(server.plain_url());
  auto holder = open_with_long_timeout(server.url());
  auto lease = holder.acquire("key");
  std::thread waiting([&] { EXPECT_TRUE(waiter.acquire("key", {.wait = {.retry_delay = 50ms}})); });
  EXPECT_TRUE(eventually([&] { return server.command({"ZCARD", "syncguard-queue:key"}) == "1"; }));
  server.command({"ACL", "SETUSER", "locker", "resetchannels"});
  EXPECT_TRUE(lease.release());
  waiting.join();
}

TEST(RedisErrors, OutOfMemory) {
  RedisServer server;
  auto locks = open_with_long_timeout(server.url());
  const auto held = locks.acquire("held");
  server.command({"CONFIG", "SET", "maxmemory", "1"});
  const auto error = error_of([&] { (void)locks.try_acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::rate_limited);
  EXPECT_EQ(server.command({"KEYS", "*:key"}), "") << "the failed acquire must write neither a lock nor a counter";
}

TEST(RedisErrors, TooManyClients) {
  RedisServer server;
  server.command({"CONFIG", "SET", "maxclients", "1"});
  auto first = open_with_long_timeout(server.plain_url());
  // The server must first close the connection that set maxclients.
  EXPECT_TRUE(eventually([&] { return !error_of([&] { (void)first.is_locked("key"); }); }));
  EXPECT_EQ(code_of_refusal(server.plain_url()), ErrorCode::rate_limited);
}

TEST(RedisErrors, UnwritableDisk) {
  RedisServer server;
  auto locks = open_with_long_timeout(server.url());
  (void)locks.is_locked("key");
  // Saving fails, because a folder has the name of the dump file.
  std::filesystem::create_directory(server.file("dump.rdb"));
  server.command({"CONFIG", "SET", "save", "1 1"});
  server.command({"SET", "changed", "1"});
  EXPECT_TRUE(eventually([&] {
    try {
      server.command({"BGSAVE"});
    } catch (const std::runtime_error&) {  // a save is already in progress
    }
    return server.command({"INFO", "persistence"}).find("rdb_last_bgsave_status:err") != std::string::npos;
  }));
  expect_error(ErrorCode::service_unavailable, [&] { (void)locks.try_acquire("key"); });
}

TEST(RedisErrors, ReadOnlyReplicaIsReconnected) {
  RedisServer master;
  RedisServer server;
  auto locks = open_with_long_timeout(server.url());
  EXPECT_TRUE(locks.try_acquire("key"));
  server.command({"REPLICAOF", "127.0.0.1", std::to_string(master.port())});
  EXPECT_TRUE(eventually([&] {
    const auto error = error_of([&] { (void)locks.try_acquire("key"); });
    return error && error->code() == ErrorCode::service_unavailable;
  }));
  const auto first = server.connections();
  server.command({"REPLICAOF", "NO", "ONE"});
  EXPECT_TRUE(eventually([&] { return !error_of([&] { (void)locks.try_acquire("key"); }); }));
  EXPECT_NE(server.connections(), first) << "the client must reconnect";
}

TEST(RedisErrors, ReplicaWithoutMaster) {
  RedisServer server({.configuration = {"replica-serve-stale-data no"}});
  auto locks = open_with_long_timeout(server.url());
  (void)locks.is_locked("key");
  const LoopbackSocket unreachable;
  server.command({"REPLICAOF", "127.0.0.1", std::to_string(unreachable.port())});
  expect_error(ErrorCode::service_unavailable, [&] { (void)locks.is_locked("key"); });
}

TEST(RedisErrors, TooFewReplicas) {
  RedisServer server;
  server.command({"CONFIG", "SET", "min-replicas-to-write", "1"});
  EXPECT_EQ(code_of_refusal(server.url()), ErrorCode::service_unavailable);
}

TEST(RedisErrors, ServerLoadingItsData) {
  RedisServer server({.configuration = {"key-load-delay 20000", "loading-process-events-interval-bytes 1024"}});
  for (int i = 0; i < 1000; ++i) server.command({"SET", "filler " + std::to_string(i), std::string(100, 'x')});
  server.command({"SAVE"});
  server.kill();
  server.start_without_waiting();
  auto locks = open(server.url("&operation_timeout=2s"));
  std::optional<LockError> loading;
  EXPECT_TRUE(eventually([&] {
    const auto error = error_of([&] { (void)locks.is_locked("key"); });
    if (error && std::string(error->what()).find("loading") != std::string::npos) loading = error;
    return loading || !error;
  }));
  ASSERT_TRUE(loading) << "the server loaded its data before the first request";
  EXPECT_EQ(loading->code(), ErrorCode::service_unavailable);
}

TEST(RedisErrors, BusyServerAndKilledScript) {
  RedisServer server({.configuration = {"busy-reply-threshold 50"}});
  auto locks = open(server.url("&operation_timeout=10s"));
  (void)locks.is_locked("key");
  std::string killed;
  std::thread endless([&] { killed = server.error_of_command({"EVAL", "while true do end", "0"}); });
  EXPECT_TRUE(eventually([&] {
    const auto error = error_of([&] { (void)locks.is_locked("key"); });
    return error && error->code() == ErrorCode::service_unavailable;
  }));
  server.command({"SCRIPT", "KILL"});
  endless.join();
  EXPECT_EQ(redis::server_error(killed).code(), ErrorCode::service_unavailable) << killed;
  EXPECT_TRUE(redis::server_error(killed).in_doubt());
  EXPECT_FALSE(locks.is_locked("key"));
}

TEST(RedisErrors, UnknownDatabase) {
  RedisServer server;
  EXPECT_EQ(code_of_refusal(server.plain_url("/99")), ErrorCode::invalid_argument);
  auto seventh = open_with_long_timeout(server.plain_url("/7"));
  const auto lease = seventh.acquire("key");
  auto zeroth = open_with_long_timeout(server.plain_url());
  EXPECT_TRUE(zeroth.try_acquire("key")) << "databases must be independent";
}

TEST(RedisErrors, ScriptErrorsOfServersBeforeVersion7) {
  const auto code = [](const char* text) { return redis::server_error(text).code(); };
  EXPECT_EQ(code("ERR Error running script (call to f_2b): @user_script:7: WRONGTYPE Operation against a key"),
            ErrorCode::invalid_argument);
  EXPECT_EQ(code("ERR Error running script (call to f_2b): @user_script: 3: OOM command not allowed"),
            ErrorCode::rate_limited);
  EXPECT_EQ(code("ERR Error running script (call to f_2b): @user_script: 3: -READONLY You can't write"),
            ErrorCode::service_unavailable);
  EXPECT_EQ(code("ERR Error running script (call to f_2b): @user_script: 3: The user executing the script can't run "
                 "this command or subcommand"),
            ErrorCode::auth_failed);
  EXPECT_EQ(code("ERR something else"), ErrorCode::internal);
  EXPECT_TRUE(redis::server_error("ERR something else").in_doubt());
  EXPECT_EQ(code("CROSSSLOT Keys in request don't hash to the same slot"), ErrorCode::invalid_argument);
}

// ---------------------------------------------------------------------------------------------------------------------
// TLS

TEST(RedisErrors, TlsVerifiesServer) {
  RedisServer server({.tls = true});
  const auto ca = server.file("ca.crt").string();
  const auto url = "rediss://" + at(server.port());
  EXPECT_EQ(code_of_refusal(url), ErrorCode::auth_failed) << "the system does not trust this CA";
  EXPECT_EQ(code_of_refusal(url + "?ca_file=" + ca + "&server_name=other.example"), ErrorCode::auth_failed);
  EXPECT_EQ(code_of_refusal("redis://" + at(server.port())), ErrorCode::service_unavailable) << "plain text";
  for (const std::string& good : {url + "?verify=false", url + "?ca_file=" + ca,
                                  "rediss://localhost:" + std::to_string(server.port()) + "?ca_file=" + ca,
                                  url + "?server_name=localhost&ca_file=" + ca}) {
    EXPECT_FALSE(open_with_long_timeout(good).is_locked("key")) << good;
  }
}

TEST(RedisErrors, TlsToServerWithoutTls) {
  const RedisServer server;
  // The server waits for the end of a line, which TLS never sends.
  EXPECT_EQ(code_of_refusal("rediss://" + at(server.port()) + "?operation_timeout=300ms"), ErrorCode::network_timeout);
}

TEST(RedisErrors, TlsWithClientCertificates) {
  RedisServer server({.tls = true, .wants_client_certificates = true});
  const auto url = "rediss://" + at(server.port()) + "?ca_file=" + server.file("ca.crt").string();
  EXPECT_EQ(code_of_refusal(url), ErrorCode::auth_failed);
  const auto certificate = "&certificate_file=" + server.file("client.crt").string();
  const auto key = "&key_file=" + server.file("client.key").string();
  EXPECT_FALSE(open_with_long_timeout(url + certificate + key).is_locked("key"));
  expect_error(ErrorCode::invalid_argument, [&] { (void)open_with_long_timeout(url + certificate); });
  expect_error(ErrorCode::invalid_argument,
               [&] { (void)open_with_long_timeout(url + certificate + "&key_file=/nowhere"); });
  expect_error(ErrorCode::invalid_argument, [&] { (void)open("rediss://localhost?ca_file=/nowhere"); });
}

// ---------------------------------------------------------------------------------------------------------------------
// Broken and hostile peers

TEST(RedisErrors, ConnectionCutMidReplyIsInDoubt) {
  const FakeRedis peer({.answer = "*4\r\n:1\r\n:", .then = FakeRedis::Then::hang_up});
  const auto error = refusal(peer.url());
  EXPECT_EQ(error.code(), ErrorCode::service_unavailable);
  EXPECT_TRUE(error.in_doubt());
}

TEST(RedisErrors, UnexpectedScriptReplies) {
  for (const std::string answer :
       {"+OK\r\n", ":17\r\n", "*0\r\n", "*1\r\n:1\r\n", "$-1\r\n", "*2\r\n:1\r\n$1\r\nx\r\n",
        "*4\r\n:1\r\n:-5\r\n:1\r\n:1\r\n", "*4\r\n:1\r\n:9999999999999999\r\n:1\r\n:1\r\n"}) {
    const FakeRedis peer({.answer = answer});
    const auto error = refusal(peer.url());
    EXPECT_EQ(error.code(), ErrorCode::internal) << answer;
    EXPECT_TRUE(error.in_doubt()) << answer;
  }
}

TEST(RedisErrors, HostileReplies) {
  std::string nested;
  for (int i = 0; i < 100; ++i) nested += "*1\r\n";
  std::string wide;
  for (int i = 0; i < 100; ++i) wide += "*1000\r\n";
  for (const std::string& answer :
       {std::string("HTTP/1.1 400 Bad Request\r\n"), std::string("*2000000000\r\n"), nested, wide,
        std::string("$2000000000\r\n") + std::string(200'000, 'x'), std::string("+") + std::string(200'000, 'x'),
        std::string("*-7\r\n:x\r\n"), std::string("\0\0\0\0", 4)}) {
    const FakeRedis peer({.answer = answer});
    const auto error = refusal(peer.url());
    EXPECT_EQ(error.code(), ErrorCode::internal) << answer.substr(0, 40);
    EXPECT_TRUE(error.in_doubt()) << answer.substr(0, 40);
  }
}

TEST(RedisErrors, AnnouncedLengthReservesNoMemory) {
  // The virtual size: reserved but unused memory does not count as resident.
  const auto reserved_pages = [] {
    std::ifstream file("/proc/self/statm");
    long total = 0;
    file >> total;
    return total;
  };
  for (const auto* answer : {"$536870912\r\n", "*1\r\n$536870912\r\n"}) {
    const FakeRedis peer({.answer = answer});
    auto locks = open(peer.url("?operation_timeout=300ms"));
    // The first call starts the threads, which also reserve memory.
    expect_error(ErrorCode::network_timeout, [&] { (void)locks.is_locked("key"); });
    const auto before = reserved_pages();
    expect_error(ErrorCode::network_timeout, [&] { (void)locks.is_locked("key"); });
    EXPECT_LT(reserved_pages() - before, 4096) << answer;
  }
}

long resident_megabytes() {
  std::ifstream file("/proc/self/statm");
  long total = 0;
  long resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE) / (1024 * 1024);
}

TEST(RedisErrors, GarbageGreetingIsRejected) {
  for (const std::string& greeting :
       {std::string("HTTP/1.1 400 Bad Request\r\n\r\n"), std::string("$2000000000\r\n") + std::string(200'000, 'x'),
        std::string("*2000000000\r\n"), std::string(200'000, '+'),
        std::string("*1\r\n*1\r\n:1\r\n+OK\r\n:5\r\n:9\r\n")}) {
    const FakeRedis peer({.answer = "garbage", .greeting = greeting});
    const auto error = refusal(peer.url("?operation_timeout=20s&connect_timeout=20s"));
    EXPECT_EQ(error.code(), ErrorCode::internal) << greeting.substr(0, 40);
  }
}

TEST(RedisErrors, EndlessReplyIsCutOff) {
  const auto before = resident_megabytes();
  for (const std::string& answer :
       {std::string("+OK\r\n+OK\r\n"), std::string(30'000, 'x'), std::string("$9\r\n"), std::string("*1000\r\n")}) {
    const FakeRedis peer({.answer = answer, .then = FakeRedis::Then::repeat_forever});
    auto locks = open(peer.url("?operation_timeout=20s"));
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 3; ++i) expect_error(ErrorCode::internal, [&] { (void)locks.is_locked("key"); });
    EXPECT_LT(std::chrono::steady_clock::now() - start, 15s) << answer[0];
  }
  EXPECT_LT(resident_megabytes() - before, 32);
}

TEST(RedisErrors, SilentServer) {
  const FakeRedis peer({.completes_handshake = false});
  const auto start = std::chrono::steady_clock::now();
  const auto error = refusal(peer.url("?operation_timeout=300ms&connect_timeout=60s"));
  EXPECT_EQ(error.code(), ErrorCode::network_timeout);
  EXPECT_FALSE(error.in_doubt()) << "the acquire was never sent";
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
}

TEST(RedisErrors, ConnectingHasItsOwnTimeout) {
  const FakeRedis peer({.completes_handshake = false});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(code_of_refusal(peer.url("?operation_timeout=60s&connect_timeout=300ms")), ErrorCode::network_timeout);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
}

TEST(RedisErrors, TimeoutsCanBeForever) {
  const RedisServer server;
  EXPECT_FALSE(open(server.url("&connect_timeout=3000000h&operation_timeout=3000000h")).is_locked("key"));
}

TEST(RedisErrors, TooManyPendingOperations) {
  RedisServer server;
  auto locks = open(server.url("&queue=4&operation_timeout=60s"));
  (void)locks.is_locked("key");
  server.pause();
  std::vector<std::future<bool>> under_way;
  for (int i = 0; i < 4; ++i) under_way.push_back(locks.async_is_locked("key", asio::use_future));
  for (int i = 0; i < 4; ++i) expect_error(ErrorCode::rate_limited, [&] { (void)locks.is_locked("key"); });
  server.resume();
  for (auto& one : under_way) EXPECT_FALSE(one.get());
  EXPECT_FALSE(locks.is_locked("key"));
}

TEST(RedisErrors, WarnsAboutEvictingServer) {
  RedisServer server({.configuration = {"maxmemory 100mb", "maxmemory-policy allkeys-lru"}});
  std::vector<std::string> warnings;
  ClientOptions options;
  options.log = Log([&](LogLevel, std::string_view message) { warnings.emplace_back(message); });
  auto locks = open_with_long_timeout(server.url(), options);
  (void)locks.is_locked("key");
  ASSERT_TRUE(options.log.flush(20s));
  EXPECT_THAT(warnings, ::testing::ElementsAre(HasSubstr("noeviction")));
}

}  // namespace
}  // namespace syncguard::testing
