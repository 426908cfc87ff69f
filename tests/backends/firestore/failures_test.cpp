// Rejected calls, lost replies, and servers that stop or restart. A proxy between client and emulator causes them.

#include "fixture.hpp"
#include "support/is_granted.hpp"

#include <syncguard/async.hpp>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/bind_executor.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>

#include <array>
#include <future>
#include <thread>

namespace syncguard::testing {
namespace {

using std::chrono::steady_clock;
using ::testing::IsEmpty;

struct FirestoreFailures : public FirestoreTest {
  FirestoreProxy proxy{emulator.address()};

  [[nodiscard]] Locks through_proxy(const std::string& more_options = "") const {
    return open_with_long_timeout(proxy.url(project, more_options));
  }
  // Applies `reply` to the calls of one method, and forwards all others.
  void script(const std::string& method, std::function<FirestoreProxy::Reply()> reply) {
    proxy.set_script([method, reply = std::move(reply)](const std::string& called) {
      return called == method ? reply() : FirestoreProxy::forward();
    });
  }
};

TEST_F(FirestoreFailures, OperationsCostAsDocumented) {
  auto locks = through_proxy();
  auto others = through_proxy();
  const auto cost = [&](const std::function<void()>& operation) {
    const int before = proxy.calls();
    operation();
    return proxy.calls() - before;
  };
  std::optional<Lease> lease;
  EXPECT_EQ(cost([&] { lease = locks.try_acquire("key"); }), 2);
  EXPECT_EQ(cost([&] { EXPECT_FALSE(is_granted(others.try_acquire("key"))); }), 1) << "one read: the lock is held";
  EXPECT_EQ(cost([&] { EXPECT_TRUE(lease->extend(30s)); }), 2);
  EXPECT_EQ(cost([&] { EXPECT_TRUE(locks.is_locked("key")); }), 1);
  EXPECT_EQ(cost([&] { EXPECT_TRUE(locks.admin().get_by_key("key")); }), 1);
  EXPECT_EQ(cost([&] { EXPECT_TRUE(locks.admin().owns(lease->id())); }), 1);
  EXPECT_EQ(cost([&] { EXPECT_TRUE(lease->release()); }), 2);
  EXPECT_EQ(cost([&] { EXPECT_FALSE(locks.release(LockId::generate())); }), 1);
}

TEST_F(FirestoreFailures, ClientKilledBetweenReadAndCommitDelaysNoOtherClient) {
  auto dying = through_proxy("&operation_timeout=60s");
  auto others = client();
  std::promise<void> about_to_commit;
  std::promise<void> allow_commit;
  script("Commit", [&] {
    about_to_commit.set_value();
    allow_commit.get_future().wait();
    return FirestoreProxy::forward();
  });
  auto late = std::async(std::launch::async, [&] {
    const auto lease = dying.try_acquire("key");
    return lease.has_value();
  });
  about_to_commit.get_future().wait();

  const auto start = steady_clock::now();
  auto lease = others.try_acquire("key");
  ASSERT_TRUE(lease);
  EXPECT_TRUE(lease->extend(30s));
  EXPECT_LT(steady_clock::now() - start, 30s) << "other clients must not wait for the 60 s timeout of the dying one";

  allow_commit.set_value();
  proxy.set_script({});
  EXPECT_FALSE(late.get()) << "the late Commit must be rejected";
  EXPECT_TRUE(lease->release());
}

TEST_F(FirestoreFailures, CommitWithLostReplyDoesNotContendWithItself) {
  auto locks = through_proxy();
  std::atomic<int> lost{0};
  script("Commit", [&] { return lost++ == 0 ? FirestoreProxy::lose_reply() : FirestoreProxy::forward(); });
  auto lease = locks.acquire("key", {.wait = {.timeout = 20s, .retry_delay = 1ms}});
  EXPECT_EQ(lost, 1) << "the second attempt must find its own lock, without another Commit";
  EXPECT_EQ(outside.get("fence_counters/fence:key")["fields"]["fence"], text_value(lease.fence().str()));
  EXPECT_EQ(outside.get("locks/key")["fields"]["lockId"], text_value(lease.id().str()));
  EXPECT_TRUE(lease.release());
}

TEST_F(FirestoreFailures, UnreportedGrantIsRetracted) {
  auto locks = through_proxy();
  std::atomic<int> lost{0};
  script("Commit", [&] { return lost++ == 0 ? FirestoreProxy::lose_reply() : FirestoreProxy::forward(); });
  const auto error = error_of([&] { (void)locks.try_acquire("key", {.ttl = 1h}); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::service_unavailable);
  EXPECT_TRUE(error->in_doubt());
  EXPECT_TRUE(eventually([&] { return outside.get("locks/key").is_null(); }));
  const auto retracted = outside.get("fence_counters/fence:key")["fields"]["fence"]["stringValue"].get<std::string>();
  EXPECT_GT(client().acquire("key").fence(), Fence::parse(retracted));
}

// An acquire times out, and its Commit reaches Firestore only after the client has retracted the acquire.
TEST_F(FirestoreFailures, LateCommitFails) {
  auto locks = through_proxy("&operation_timeout=4s");
  ASSERT_TRUE(eventually([&] { return !error_of([&] { (void)locks.is_locked("connected"); }); }));
  for (const bool counter_exists : {false, true}) {
    const std::string key = counter_exists ? "used before" : "new";
    // The retraction makes the counter, or advances it.
    Fence advanced;
    if (counter_exists) {
      auto lease = client().acquire(key);
      advanced = Fence(lease.fence().value() + 1);
      EXPECT_TRUE(lease.release());
    }
    std::promise<void> allow_commit;
    auto commit_allowed = allow_commit.get_future().share();
    std::atomic<int> commits{0};
    script("Commit", [&commits, commit_allowed] {
      if (commits++ == 0) commit_allowed.wait();
      return FirestoreProxy::forward();
    });
    const auto error = error_of([&] { (void)locks.try_acquire(key, {.ttl = 1h}); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::network_timeout);
    EXPECT_TRUE(error->in_doubt());
    // The retraction in the background has changed the counter.
    ASSERT_TRUE(eventually([&] {
      const auto counter = outside.get("fence_counters/fence:" + key);
      return !counter.is_null() && counter["fields"]["fence"] == text_value(advanced.str());
    }));
    // All Commits except the late one have been answered.
    const auto unanswered = [&] { return proxy.calls("Commit") - static_cast<int>(proxy.statuses("Commit").size()); };
    ASSERT_TRUE(eventually([&] { return unanswered() == 1; }));
    allow_commit.set_value();
    ASSERT_TRUE(eventually([&] { return unanswered() == 0; }));
    EXPECT_THAT(proxy.statuses("Commit").back(),
                ::testing::AnyOf(grpc::StatusCode::FAILED_PRECONDITION, grpc::StatusCode::ALREADY_EXISTS));
    EXPECT_THAT(outside.list("locks"), IsEmpty()) << "the late Commit must not create a lock";
    proxy.set_script({});
  }
}

TEST_F(FirestoreFailures, RepeatedConflictsEnd) {
  auto locks = through_proxy();
  for (const auto code : {grpc::StatusCode::FAILED_PRECONDITION, grpc::StatusCode::ALREADY_EXISTS,
                          grpc::StatusCode::NOT_FOUND, grpc::StatusCode::ABORTED}) {
    script("Commit", [code] { return FirestoreProxy::refuse(code); });
    const int before = proxy.calls("Commit");
    const auto error = error_of([&] { (void)locks.try_acquire("key"); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::service_unavailable);
    EXPECT_FALSE(error->in_doubt());
    EXPECT_EQ(proxy.calls("Commit") - before, 6);
  }
  // Occasional conflicts are retried.
  std::atomic<int> tries{0};
  script("Commit", [&tries] {
    return tries++ < 3 ? FirestoreProxy::refuse(grpc::StatusCode::ABORTED) : FirestoreProxy::forward();
  });
  EXPECT_TRUE(locks.try_acquire("key"));
}

struct Refusal {
  grpc::StatusCode status;
  ErrorCode of_read;
  ErrorCode of_commit;
  bool commit_in_doubt;
};

TEST_F(FirestoreFailures, MapsEveryStatus) {
  using grpc::StatusCode;
  const std::vector<Refusal> refusals = {
      {StatusCode::PERMISSION_DENIED, ErrorCode::auth_failed, ErrorCode::auth_failed, false},
      {StatusCode::UNAUTHENTICATED, ErrorCode::auth_failed, ErrorCode::auth_failed, false},
      {StatusCode::RESOURCE_EXHAUSTED, ErrorCode::rate_limited, ErrorCode::rate_limited, true},
      {StatusCode::INVALID_ARGUMENT, ErrorCode::invalid_argument, ErrorCode::invalid_argument, false},
      {StatusCode::UNAVAILABLE, ErrorCode::service_unavailable, ErrorCode::service_unavailable, true},
      {StatusCode::INTERNAL, ErrorCode::service_unavailable, ErrorCode::service_unavailable, true},
      {StatusCode::DEADLINE_EXCEEDED, ErrorCode::network_timeout, ErrorCode::network_timeout, true},
      {StatusCode::UNKNOWN, ErrorCode::internal, ErrorCode::internal, true},
      {StatusCode::DATA_LOSS, ErrorCode::internal, ErrorCode::internal, true},
      {StatusCode::UNIMPLEMENTED, ErrorCode::internal, ErrorCode::internal, true},
      // In a Commit, these mean a conflict, which is retried.
      {StatusCode::NOT_FOUND, ErrorCode::invalid_argument, ErrorCode::service_unavailable, false},
      {StatusCode::FAILED_PRECONDITION, ErrorCode::invalid_argument, ErrorCode::service_unavailable, false},
      {StatusCode::ABORTED, ErrorCode::service_unavailable, ErrorCode::service_unavailable, false}};
  auto locks = through_proxy();
  const auto id = LockId::generate();
  put_lock("held", id, 1h);
  for (const auto& [status, of_read, of_commit, in_doubt] : refusals) {
    const auto refuse = [code = status] { return FirestoreProxy::refuse(code); };
    script("BatchGetDocuments", refuse);
    auto error = error_of([&] { (void)locks.try_acquire("key"); });
    ASSERT_TRUE(error) << status;
    EXPECT_EQ(error->code(), of_read) << status;
    EXPECT_FALSE(error->in_doubt()) << status;
    EXPECT_THAT(error->what(), ::testing::Not(::testing::HasSubstr("scripted")))
        << "the server's message must only be in the cause";
    EXPECT_TRUE(error->context().cause);
    expect_error(of_read, [&] { (void)locks.is_locked("key"); });
    expect_error(of_read, [&] { (void)locks.admin().get_by_key("key"); });
    script("RunQuery", refuse);
    expect_error(of_read, [&] { (void)locks.release(id); });
    expect_error(of_read, [&] { (void)locks.extend(id, 1h); });
    expect_error(of_read, [&] { (void)locks.admin().owns(id); });
    script("Commit", refuse);
    error = error_of([&] { (void)locks.try_acquire("key"); });
    ASSERT_TRUE(error) << status;
    EXPECT_EQ(error->code(), of_commit) << status;
    EXPECT_EQ(error->in_doubt(), in_doubt) << status;
    expect_error(of_commit, [&] { (void)locks.release(id); });
    expect_error(of_commit, [&] { (void)locks.extend(id, 1h); });
  }
}

// A blocking caller's thread makes the call itself; otherwise gRPC's threads do.
struct CallStyle {
  const char* name;
  std::optional<LockError> (*try_acquire)(Locks& locks, const std::stop_token& stop);
};

std::optional<LockError> try_acquire_blocking(Locks& locks, const std::stop_token& stop) {
  return error_of([&] { (void)locks.try_acquire("key", {}, stop); });
}

std::optional<LockError> try_acquire_asynchronously(Locks& locks, const std::stop_token& stop) {
  asio::io_context context;
  asio::cancellation_signal signal;
  std::exception_ptr outcome;
  const auto take = [&](std::exception_ptr error, const TryResult&) { outcome = std::move(error); };
  locks.async_try_acquire("key", {}, asio::bind_cancellation_slot(signal.slot(), asio::bind_executor(context, take)));
  const std::stop_callback cancel(
      stop, [&] { asio::post(context, [&] { signal.emit(asio::cancellation_type::terminal); }); });
  context.run();
  return error_of([&] {
    if (outcome) std::rethrow_exception(outcome);
  });
}

constexpr std::array both_styles{CallStyle{"blocking", try_acquire_blocking},
                                 CallStyle{"asynchronous", try_acquire_asynchronously}};

TEST_F(FirestoreFailures, StopEndsPendingCall) {
  for (const std::string method : {"BatchGetDocuments", "Commit"}) {
    for (const CallStyle& style : both_styles) {
      SCOPED_TRACE(method + ", " + style.name);
      auto locks = through_proxy("&operation_timeout=60s");
      // The first call also finds the credentials, which is not tested here.
      EXPECT_FALSE(locks.is_locked("key"));
      script(method, [] { return FirestoreProxy::hang(); });
      const int before = proxy.calls(method);
      const int given_up_before = proxy.given_up();
      std::stop_source stop;
      std::optional<LockError> error;
      steady_clock::time_point ended;
      std::thread caller([&] {
        error = style.try_acquire(locks, stop.get_token());
        ended = steady_clock::now();
      });
      EXPECT_TRUE(eventually([&] { return proxy.calls(method) > before; }));
      const auto stopped_at = steady_clock::now();
      stop.request_stop();
      caller.join();
      EXPECT_LT(ended - stopped_at, 20s) << "within 50 ms on an idle machine";
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::aborted);
      EXPECT_EQ(error->in_doubt(), method == "Commit");
      EXPECT_TRUE(eventually([&] { return proxy.given_up() > given_up_before; }))
          << "the server must see the cancellation";
      // Lets the retraction of an acquire in doubt finish before the next case.
      proxy.set_script({});
    }
  }
}

TEST_F(FirestoreFailures, SilentServerEndsInOperationTimeout) {
  auto locks = through_proxy("&operation_timeout=3s");
  ASSERT_TRUE(eventually([&] { return !error_of([&] { (void)locks.is_locked("connected"); }); }));
  for (const std::string method : {"BatchGetDocuments", "Commit"}) {
    for (const CallStyle& style : both_styles) {
      SCOPED_TRACE(method + ", " + style.name);
      script(method, [] { return FirestoreProxy::hang(); });
      const auto start = steady_clock::now();
      const auto error = style.try_acquire(locks, {});
      EXPECT_LT(steady_clock::now() - start, 20s);
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::network_timeout);
      EXPECT_EQ(error->in_doubt(), method == "Commit");
    }
  }
  proxy.set_script({});
}

// ---------------------------------------------------------------------------------------------------------------------
// These tests pause and kill their own emulator

TEST(FirestoreRestart, CallersRecoverAfterRestart) {
  FirestoreEmulator emulator;
  auto locks = open(emulator.url("project", "&operation_timeout=10s"));
  auto others = open(emulator.url("project", "&operation_timeout=10s"));
  auto held = locks.acquire("held", {.ttl = 1h});
  const auto before = locks.acquire("key").fence();
  auto waiting = std::async(std::launch::async, [&] {
    return others.acquire("held", {.wait = {.timeout = 3min, .max_retries = 1000, .retry_delay = 1s}}).fence();
  });
  ASSERT_EQ(waiting.wait_for(500ms), std::future_status::timeout);

  emulator.kill();
  const auto error = error_of([&] { (void)locks.try_acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::service_unavailable) << error->what();
  EXPECT_FALSE(error->in_doubt()) << "the acquire was never sent";

  emulator.start();
  // The emulator keeps data in memory, so its locks and counters are lost. Firestore loses neither.
  EXPECT_GT(locks.acquire("key", {.wait = {.timeout = 1min, .max_retries = 1000, .retry_delay = 100ms}}).fence(),
            before);
  ASSERT_EQ(waiting.wait_for(1min), std::future_status::ready);
  EXPECT_GT(waiting.get(), held.fence());
  held.detach();
}

TEST(FirestoreRestart, SilentServerEndsInOperationTimeout) {
  FirestoreEmulator emulator;
  auto locks = open(emulator.url("project", "&operation_timeout=4s"));
  EXPECT_TRUE(locks.acquire("key", {.wait = {.timeout = 1min, .max_retries = 1000}}).release());
  emulator.pause();
  const auto start = steady_clock::now();
  expect_error(ErrorCode::network_timeout, [&] { (void)locks.try_acquire("key"); });
  EXPECT_LT(steady_clock::now() - start, 20s);
  emulator.resume();
  EXPECT_TRUE(locks.acquire("key", {.wait = {.timeout = 1min, .max_retries = 1000}}));
}

}  // namespace
}  // namespace syncguard::testing
