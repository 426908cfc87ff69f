// Servers that are slow, silent, or not Firestore. The test provides them, without an emulator.

#include "scripted_documents.hpp"
#include "servers/firestore_proxy.hpp"
#include "servers/loopback.hpp"
#include "support/eventually.hpp"
#include "support/expect_error.hpp"
#include "support/is_granted.hpp"
#include "support/liveness_cases.hpp"
#include "support/long_timeouts.hpp"

#include <syncguard/backend.hpp>
#include <syncguard/firestore.hpp>
#include <syncguard/syncguard.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct FirestorePeer : public ::testing::Test {
  // There is no emulator to forward to: every script answers itself.
  FirestoreProxy server{"127.0.0.1:1"};

  // A reply to is_locked("key"): there is no such lock.
  static FirestoreProxy::Reply nothing_found() { return answer_missing({"locks/key"}); }
  // Delays the first reply only.
  void delay_first_reply(std::chrono::milliseconds delay) {
    const auto first = std::make_shared<std::atomic<bool>>(true);
    server.set_script([=](const std::string&) {
      if (first->exchange(false)) std::this_thread::sleep_for(delay);
      return nothing_found();
    });
  }
};

TEST_F(FirestorePeer, FirstReplyMayTakeLongerThanDefaultTimeout) {
  delay_first_reply(6s);
  auto locks = open(server.url("project"));
  EXPECT_FALSE(locks.is_locked("key"));
}

TEST_F(FirestorePeer, ConnectTimeoutAppliesOnlyToFirstReply) {
  delay_first_reply(3s);
  auto locks = open(server.url("project", "&operation_timeout=1s&connect_timeout=5m"));
  EXPECT_FALSE(locks.is_locked("key"));
  server.set_script([](const std::string&) { return FirestoreProxy::hang(); });
  const auto start = steady_clock::now();
  expect_error(ErrorCode::network_timeout, [&] { (void)locks.is_locked("key"); });
  EXPECT_LT(steady_clock::now() - start, 1min);
}

TEST_F(FirestorePeer, ExplicitOperationTimeoutIncludesConnecting) {
  server.set_script([](const std::string&) { return FirestoreProxy::hang(); });
  for (const std::string options : {"&operation_timeout=1s", "&operation_timeout=1s&connect_timeout=0s"}) {
    auto locks = open(server.url("project", options));
    const auto start = steady_clock::now();
    expect_error(ErrorCode::network_timeout, [&] { (void)locks.is_locked("key"); });
    EXPECT_LT(steady_clock::now() - start, 9s) << "the default for connecting is 10 s";
  }
}

TEST_F(FirestorePeer, StopEndsFirstCallWhileConnecting) {
  server.set_script([](const std::string&) { return FirestoreProxy::hang(); });
  auto locks = open(server.url("project", "&connect_timeout=5m"));
  std::stop_source stop;
  std::thread stopper([&] {
    while (server.calls() == 0) std::this_thread::sleep_for(1ms);
    stop.request_stop();
  });
  const auto start = steady_clock::now();
  expect_error(ErrorCode::aborted, [&] { (void)locks.is_locked("key", stop.get_token()); });
  EXPECT_LT(steady_clock::now() - start, 1min);
  stopper.join();
}

// ---------------------------------------------------------------------------------------------------------------------
// Documents with impossible times

TEST_F(FirestorePeer, LockWithInvalidTimesIsLeftAlone) {
  auto locks = open_with_long_timeout(server.url("project"));
  constexpr std::int64_t latest = 1'000'000'000'000'000;
  for (const std::int64_t impossible : {std::numeric_limits<std::int64_t>::min(), std::int64_t{-1}, latest + 1,
                                        std::numeric_limits<std::int64_t>::max()}) {
    for (const auto& document : {lock_document(impossible, 1), lock_document(1, impossible)}) {
      server.set_script(answer_with(document));
      const LockId id(document.fields().at("lockId").string_value());
      expect_error(ErrorCode::internal, [&] { (void)locks.is_locked("key"); });
      expect_error(ErrorCode::internal, [&] { (void)locks.admin().get_by_key("key"); });
      expect_error(ErrorCode::internal, [&] { (void)locks.try_acquire("key"); });
      expect_error(ErrorCode::internal, [&] { (void)locks.acquire("key"); });
      expect_error(ErrorCode::internal, [&] { (void)locks.admin().get_by_id(id); });
      expect_error(ErrorCode::internal, [&] { (void)locks.extend(id, 30s); });
      expect_error(ErrorCode::internal, [&] { (void)locks.release(id); });
    }
  }
  EXPECT_EQ(server.calls("Commit"), 0) << "nothing must be written";
  // The latest valid time, about thirty thousand years from now.
  server.set_script(answer_with(lock_document(latest, latest)));
  EXPECT_TRUE(locks.is_locked("key"));
  EXPECT_FALSE(is_granted(locks.try_acquire("key")));
  expect_error(ErrorCode::acquisition_timeout, [&] { (void)locks.acquire("key", {.wait = {.timeout = 50ms}}); });
  EXPECT_EQ(server.calls("Commit"), 0);
}

TEST_F(FirestorePeer, ReplyWithInvalidTimeIsAnError) {
  auto locks = open_with_long_timeout(server.url("project"));
  const auto answer_at = [&](std::int64_t seconds, std::int32_t nanos) {
    wire::BatchGetDocumentsResponse response;
    response.set_missing(documents + "locks/key");
    response.mutable_read_time()->set_seconds(seconds);
    response.mutable_read_time()->set_nanos(nanos);
    server.set_script(
        [reply = response.SerializeAsString()](const std::string&) { return FirestoreProxy::answer({reply}); });
  };
  for (const std::int64_t seconds : {std::numeric_limits<std::int64_t>::min(), std::int64_t{-1}, std::int64_t{1} << 40,
                                     std::numeric_limits<std::int64_t>::max()}) {
    answer_at(seconds, 0);
    expect_error(ErrorCode::internal, [&] { (void)locks.is_locked("key"); });
  }
  for (const std::int32_t nanos : {-1, 1'000'000'000}) {
    answer_at(1, nanos);
    expect_error(ErrorCode::internal, [&] { (void)locks.is_locked("key"); });
  }
  EXPECT_FALSE(locks.admin().clock_skew());
}

// Without Firestore's time, this host's clock cannot be checked.
TEST_F(FirestorePeer, RepliesWithoutTimeGrantAndRemoveNothing) {
  server.set_script([](const std::string& method) {
    if (method == "RunQuery") {
      wire::RunQueryResponse found;
      *found.mutable_document() = lock_document(1, 1);
      return FirestoreProxy::answer({found.SerializeAsString()});
    }
    std::vector<std::string> messages;
    for (const std::string name : {"locks/key", "fence_counters/fence:key"}) {
      wire::BatchGetDocumentsResponse missing;
      missing.set_missing(documents + name);
      messages.push_back(missing.SerializeAsString());
    }
    return FirestoreProxy::answer(std::move(messages));
  });
  auto locks = open_with_long_timeout(server.url("project"));
  const auto error = error_of([&] { (void)locks.try_acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::service_unavailable);
  EXPECT_THAT(error->what(), HasSubstr("contain no time"));
  expect_error(ErrorCode::service_unavailable, [&] { (void)locks.admin().clean_up(); });
  EXPECT_EQ(server.calls("Commit"), 0);
  EXPECT_FALSE(locks.admin().clock_skew());
}

// ---------------------------------------------------------------------------------------------------------------------
// Liveness and ownership of locks

// A client with a fixed clock.
Locks client_at(const FirestoreProxy& server, std::chrono::milliseconds now) {
  FirestoreOptions options;
  options.project = "project";
  options.emulator = server.address();
  options.clock = [now] { return Timestamp(now); };
  return Locks(make_firestore_backend(options), with_long_timeout());
}

// Like answer_with, and every Commit succeeds.
FirestoreProxy::Script answer_and_commit_with(const wire::Document& document, std::chrono::milliseconds now) {
  return [answer = answer_with(document, Timestamp(now))](const std::string& method) {
    return method == "Commit" ? FirestoreProxy::answer({wire::CommitResponse().SerializeAsString()}) : answer(method);
  };
}

TEST_F(FirestorePeer, LivenessMatchesOtherBackends) {
  for (const auto& [expires_at, now, live] : liveness_cases) {
    SCOPED_TRACE("expires at " + std::to_string(expires_at) + ", now " + std::to_string(now));
    const auto document = lock_document(expires_at, 1);
    const LockId id(document.fields().at("lockId").string_value());
    server.set_script(answer_and_commit_with(document, std::chrono::milliseconds(now)));
    auto locks = client_at(server, std::chrono::milliseconds(now));
    EXPECT_EQ(locks.is_locked("key"), live);
    EXPECT_EQ(locks.admin().get_by_key("key").has_value(), live);
    EXPECT_EQ(locks.admin().get_by_id(id).has_value(), live);
    EXPECT_EQ(locks.admin().owns(id), live);
    EXPECT_EQ(locks.extend(id, 30s).has_value(), live);
    EXPECT_EQ(locks.release(id), live);
    auto lease = locks.try_acquire("key");
    EXPECT_EQ(lease.has_value(), !live);
    if (lease) lease->detach();
  }
}

TEST_F(FirestorePeer, QueryResultNeverAffectsForeignLock) {
  server.set_script(answer_and_commit_with(lock_document(10'000, 1), 9000ms));
  auto locks = client_at(server, 9000ms);
  const auto id = LockId::generate();
  EXPECT_FALSE(locks.release(id));
  EXPECT_FALSE(locks.extend(id, 30s));
  EXPECT_FALSE(locks.admin().get_by_id(id));
  EXPECT_FALSE(locks.admin().owns(id));
  EXPECT_EQ(server.calls("RunQuery"), 4);
  EXPECT_EQ(server.calls("Commit"), 0);
}

TEST_F(FirestorePeer, CleanupKeepsLiveLocksAndForeignDocuments) {
  auto no_lock = lock_document(1, 1);
  no_lock.mutable_fields()->erase("fence");
  for (const auto& document : {lock_document(9000, 1), no_lock}) {
    server.set_script(answer_and_commit_with(document, 10'000ms));
    EXPECT_EQ(client_at(server, 10'000ms).admin().clean_up().count, 0U);
  }
  EXPECT_EQ(server.calls("Commit"), 0);
  server.set_script(answer_and_commit_with(lock_document(7999, 1), 10'000ms));
  EXPECT_EQ(client_at(server, 10'000ms).admin().clean_up().count, 1U);
  EXPECT_EQ(server.calls("Commit"), 1);
}

// A lock that is acquired again between the query and the Commit must not be removed.
TEST_F(FirestorePeer, CleanupRereadsAfterConflict) {
  std::atomic<int> commits{0};
  server.set_script([&, found = answer_with(lock_document(1, 1), Timestamp(10'000ms))](const std::string& method) {
    if (method != "Commit") return found(method);
    ++commits;
    server.set_script(
        [](const std::string&) { return FirestoreProxy::answer({wire::RunQueryResponse().SerializeAsString()}); });
    return FirestoreProxy::refuse(grpc::StatusCode::FAILED_PRECONDITION);
  });
  EXPECT_EQ(client_at(server, 10'000ms).admin().clean_up().count, 0U);
  EXPECT_EQ(commits, 1);
}

// ---------------------------------------------------------------------------------------------------------------------
// Replies that Firestore never sends

TEST_F(FirestorePeer, GarbageReplyIsAnError) {
  auto locks = open_with_long_timeout(server.url("project"));
  for (const std::string garbage : {"\xff\xff\xff\xff", "\x0a\xff\xff\xff\xff\x0f", "", "{}"}) {
    server.set_script([=](const std::string&) { return FirestoreProxy::answer({garbage}); });
    expect_error(ErrorCode::internal, [&] { (void)locks.is_locked("key"); });
  }
  server.set_script([](const std::string&) { return FirestoreProxy::answer({}); });
  expect_error(ErrorCode::internal, [&] { (void)locks.is_locked("key"); });
}

TEST_F(FirestorePeer, OversizedReplyIsAnErrorAndNotRateLimited) {
  auto locks = open_with_long_timeout(server.url("project"));
  wire::BatchGetDocumentsResponse response;
  response.set_missing(std::string(3 << 20, 'x'));
  server.set_script(
      [reply = response.SerializeAsString()](const std::string&) { return FirestoreProxy::answer({reply}); });
  const auto error = error_of([&] { (void)locks.is_locked("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::internal) << error->what();
  EXPECT_THAT(error->what(), HasSubstr("larger"));
}

TEST_F(FirestorePeer, ExcessRepliesAreCutOff) {
  auto locks = open_with_long_timeout(server.url("project"));
  wire::BatchGetDocumentsResponse large;
  large.set_missing(std::string(1 << 20, 'x'));
  for (const auto& message : {large.SerializeAsString(), std::string()}) {
    server.set_script([=](const std::string&) { return FirestoreProxy::flood(message); });
    const auto error = error_of([&] { (void)locks.is_locked("key"); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::internal) << error->what();
    EXPECT_THAT(error->what(), HasSubstr("larger"));
    if (!message.empty()) {
      EXPECT_LT(server.flooded(), 64) << "only messages that the client or the connection buffers may be sent";
    }
  }
  // A Commit with such a reply is in doubt.
  server.set_script([](const std::string& method) {
    if (method == "Commit") return FirestoreProxy::flood("");
    return answer_missing({"locks/key", "fence_counters/fence:key"});
  });
  const auto error = error_of([&] { (void)locks.try_acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::internal);
  EXPECT_TRUE(error->in_doubt());
}

TEST_F(FirestorePeer, GarbageListenStreamIsReplaced) {
  auto locks = open_with_long_timeout(server.url("project"));
  const auto held = answer_with(lock_document(4'000'000'000'000, 1));
  server.set_script(
      [=](const std::string& method) { return method == "Listen" ? FirestoreProxy::forward() : held(method); });
  std::stop_source stop;
  std::thread waiter(
      [&] { expect_error(ErrorCode::aborted, [&] { (void)locks.acquire("key", patient, stop.get_token()); }); });
  EXPECT_TRUE(eventually([&] { return server.awaited() == 1; }));
  EXPECT_EQ(server.calls("Listen"), 1);
  server.send_garbage();
  EXPECT_TRUE(eventually([&] { return server.calls("Listen") >= 2; }));
  stop.request_stop();
  waiter.join();
}

// ---------------------------------------------------------------------------------------------------------------------
// Servers that do not speak gRPC

TEST(FirestoreForeignServer, SilentServerEndsInTimeout) {
  const LoopbackSocket silent;
  silent.listen();
  auto locks = open("firestore://project?operation_timeout=1s&emulator=127.0.0.1:" + std::to_string(silent.port()));
  const auto start = steady_clock::now();
  expect_error(ErrorCode::network_timeout, [&] { (void)locks.is_locked("key"); });
  EXPECT_LT(steady_clock::now() - start, 20s);
}

TEST(FirestoreForeignServer, ServerSendingGarbageIsUnavailable) {
  for (const bool endless : {false, true}) {
    const LoopbackSocket listener;
    listener.listen();
    std::atomic<bool> ending{false};
    std::thread server([&] {
      for (;;) {
        const int connection = ::accept(listener.descriptor(), nullptr, nullptr);
        if (connection < 0 || ending) {
          if (connection >= 0) ::close(connection);
          return;
        }
        const std::string garbage(1 << 16, 'H');
        do {
          if (::send(connection, garbage.data(), garbage.size(), MSG_NOSIGNAL) < 0) break;
        } while (endless && !ending);
        ::close(connection);
      }
    });
    {
      auto locks =
          open("firestore://project?operation_timeout=20s&emulator=127.0.0.1:" + std::to_string(listener.port()));
      expect_error(ErrorCode::service_unavailable, [&] { (void)locks.is_locked("key"); });
    }
    ending = true;
    ::shutdown(listener.descriptor(), SHUT_RDWR);
    server.join();
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Emulators

struct FirestoreEmulatorVariable : public FirestorePeer {
  FirestoreEmulatorVariable() { setenv("FIRESTORE_EMULATOR_HOST", server.address().c_str(), 1); }
  ~FirestoreEmulatorVariable() override { unsetenv("FIRESTORE_EMULATOR_HOST"); }

  std::vector<std::string> warnings_of(const std::string& url) {
    std::mutex mutex;
    std::vector<std::string> warnings;
    ClientOptions options;
    options.log = Log([&](LogLevel level, std::string_view message) {
      const std::lock_guard lock(mutex);
      if (level == LogLevel::warning) warnings.emplace_back(message);
    });
    server.set_script([](const std::string&) { return nothing_found(); });
    auto locks = open_with_long_timeout(url, options);
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(locks.is_locked("key"));
    locks.close();
    const std::lock_guard lock(mutex);
    return warnings;
  }
};

TEST_F(FirestoreEmulatorVariable, LogsOneWarning) {
  EXPECT_THAT(warnings_of("firestore://project"),
              ElementsAre(AllOf(HasSubstr("FIRESTORE_EMULATOR_HOST"), HasSubstr("plain text"))));
}

TEST_F(FirestoreEmulatorVariable, LogsNoWarningIfUrlNamesEmulator) {
  EXPECT_THAT(warnings_of(server.url("project")), IsEmpty());
}

TEST_F(FirestoreEmulatorVariable, NeverReplacesEndpoint) {
  const auto error = error_of([] { (void)open("firestore://project?endpoint=eur3-firestore.googleapis.com"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error->what(), HasSubstr("FIRESTORE_EMULATOR_HOST"));
  expect_error(ErrorCode::invalid_argument,
               [&] { (void)open(server.url("project", "&endpoint=eur3-firestore.googleapis.com")); });
}

}  // namespace
}  // namespace syncguard::testing
