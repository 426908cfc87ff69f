// Waiting on Firestore: which notifications wake a waiter.

#include "fixture.hpp"

#include <syncguard/async.hpp>

#include <asio/use_future.hpp>

#include <future>

namespace syncguard::testing {
namespace {

void report_deleted(std::int32_t target, const std::string& document, firestore::wire::ListenResponse& response) {
  response.mutable_document_delete()->set_document(document);
  response.mutable_document_delete()->add_removed_target_ids(target);
}
void report_present(std::int32_t target, const std::string& document, firestore::wire::ListenResponse& response) {
  response.mutable_document_change()->mutable_document()->set_name(document);
  response.mutable_document_change()->add_target_ids(target);
}

// A retry would come too late for the tests: only a notification can end the wait in time.
constexpr AcquireOptions without_retries{
    .wait = {.timeout = 10min, .max_retries = 1000, .retry_delay = 5min, .max_delay = 5min}};

// The client uses a proxy, and the test sends the messages on its Listen streams.
struct FirestoreWaiting : public FirestoreTest {
  FirestoreProxy proxy{emulator.address()};
  Locks locks = open(proxy.url(project, "&operation_timeout=20s"));

  FirestoreWaiting() {
    proxy.set_script([](const std::string&) { return FirestoreProxy::forward(); });
  }
  // A waiter for a key that another client holds; it has read the lock and listens for changes.
  [[nodiscard]] std::future<Lease> waiter(const std::string& key) {
    put_lock(key, LockId::generate(), 1h);
    const int before = proxy.awaited();
    const int reads = proxy.calls("BatchGetDocuments");
    auto waiting = locks.async_acquire(key, without_retries, asio::use_future);
    // It has read the lock, started to listen, and read the lock again.
    EXPECT_TRUE(eventually([&] { return proxy.awaited() > before && proxy.calls("BatchGetDocuments") >= reads + 2; }));
    EXPECT_EQ(waiting.wait_for(50ms), std::future_status::timeout);
    return waiting;
  }
  void expect_served(std::future<Lease>& waiting) {
    ASSERT_EQ(waiting.wait_for(60s), std::future_status::ready);
    (void)waiting.get();
  }
  void expect_served_after_wake_up(std::future<Lease>& waiting) {
    outside.remove("locks/key");
    proxy.send_change(report_deleted);
    expect_served(waiting);
  }
};

TEST_F(FirestoreWaiting, OneStreamServesAllWaitsOfAClient) {
  constexpr int keys = 50;
  std::vector<std::future<Lease>> waiting;
  for (int i = 0; i < keys; ++i) {
    waiting.push_back(waiter("key" + std::to_string(i)));
  }
  EXPECT_EQ(proxy.streams(), 1);
  EXPECT_LT(proxy.calls("Listen"), 5) << "one, unless a slow machine made the client replace a silent stream";
  for (int i = 0; i < keys; ++i) outside.remove("locks/key" + std::to_string(i));
  proxy.send_change(report_deleted);
  for (auto& one : waiting) expect_served(one);
  EXPECT_TRUE(eventually([&] { return proxy.awaited() == 0; }))
      << "the client must stop listening for keys without waiters";
}

TEST_F(FirestoreWaiting, EveryKindOfChangeWakesWaiter) {
  const std::vector<std::function<void(std::int32_t, const std::string&, firestore::wire::ListenResponse&)>> changes = {
      report_deleted,
      [](std::int32_t, const std::string& document, firestore::wire::ListenResponse& response) {
        response.mutable_document_remove()->set_document(document);
      },
      [](std::int32_t target, const std::string&, firestore::wire::ListenResponse& response) {
        response.mutable_filter()->set_target_id(target);
      },
      [](std::int32_t target, const std::string&, firestore::wire::ListenResponse& response) {
        response.mutable_target_change()->set_target_change_type(firestore::wire::TargetChange::RESET);
        response.mutable_target_change()->add_target_ids(target);
      },
      // The server stops reporting this target, and gives a reason.
      [](std::int32_t target, const std::string&, firestore::wire::ListenResponse& response) {
        response.mutable_target_change()->set_target_change_type(firestore::wire::TargetChange::REMOVE);
        response.mutable_target_change()->add_target_ids(target);
        response.mutable_target_change()->mutable_cause()->set_code(grpc::StatusCode::RESOURCE_EXHAUSTED);
      }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    // A key of its own for each change: after the release of a contended lock, a client backs off without reading it.
    const auto key = "key" + std::to_string(i);
    // The change must reach only the new waiter.
    ASSERT_TRUE(eventually([&] { return proxy.awaited() == 0; }));
    auto waiting = waiter(key);
    outside.remove("locks/" + key);
    proxy.send_change(changes[i]);
    expect_served(waiting);
  }
}

TEST_F(FirestoreWaiting, BrieflyRecreatedLockIsReadAgain) {
  auto waiting = waiter("key");
  // When the server reports the deletion, another client has already acquired the lock again. The server does not
  // report the second deletion, because the last reported state is "deleted" already.
  const int reads = proxy.calls("BatchGetDocuments");
  proxy.send_change(report_deleted);
  ASSERT_TRUE(eventually([&] { return proxy.calls("BatchGetDocuments") > reads; }));
  outside.remove("locks/key");
  expect_served(waiting);
}

TEST_F(FirestoreWaiting, HeldLockIsNotPolled) {
  auto waiting = waiter("key");
  const int reads = proxy.calls("BatchGetDocuments");
  proxy.send_change(report_present);
  EXPECT_EQ(waiting.wait_for(300ms), std::future_status::timeout);
  EXPECT_EQ(proxy.calls("BatchGetDocuments"), reads);
  expect_served_after_wake_up(waiting);
}

TEST_F(FirestoreWaiting, BrokenStreamIsReopened) {
  auto waiting = waiter("key");
  const int reads = proxy.calls("BatchGetDocuments");
  proxy.cut_streams();
  ASSERT_TRUE(eventually([&] { return proxy.calls("Listen") >= 2 && proxy.awaited() == 1; }));
  ASSERT_TRUE(eventually([&] { return proxy.calls("BatchGetDocuments") >= reads + 2; }))
      << "the lock must be read again, because notifications may have been missed";
  expect_served_after_wake_up(waiting);
}

TEST_F(FirestoreWaiting, SilentStreamIsReplaced) {
  std::atomic<int> streams{0};
  proxy.set_script([&](const std::string& method) {
    return method == "Listen" && streams++ == 0 ? FirestoreProxy::hang() : FirestoreProxy::forward();
  });
  auto waiting = waiter("key");
  EXPECT_GE(streams, 2);
  expect_served_after_wake_up(waiting);
}

TEST_F(FirestoreWaiting, ChangeOfHolderWakesWaiter) {
  auto waiting = waiter("key");
  const auto report_holder = [&](const LockId& holder) {
    proxy.send_change([&](std::int32_t target, const std::string& document, firestore::wire::ListenResponse& response) {
      report_present(target, document, response);
      auto& fields = *response.mutable_document_change()->mutable_document()->mutable_fields();
      fields["lockId"].set_string_value(holder.str());
    });
  };
  const int reads = proxy.calls("BatchGetDocuments");
  const auto holder = LockId::generate();
  report_holder(holder);
  report_holder(holder);  // an extend
  EXPECT_EQ(waiting.wait_for(100ms), std::future_status::timeout);
  EXPECT_EQ(proxy.calls("BatchGetDocuments"), reads);
  // The lock was free between two holders, and the server did not report that.
  outside.remove("locks/key");
  report_holder(LockId::generate());
  expect_served(waiting);
}

TEST_F(FirestoreWaiting, FailingStreamIsNotReopenedConstantly) {
  for (const auto code : {grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::RESOURCE_EXHAUSTED}) {
    proxy.set_script([code](const std::string& method) {
      return method == "Listen" ? FirestoreProxy::refuse(code) : FirestoreProxy::forward();
    });
    put_lock("key", LockId::generate(), 1h);
    const int before = proxy.calls();
    expect_error(ErrorCode::acquisition_timeout, [&] {
      (void)locks.acquire("key",
                          {.wait = {.timeout = 2s, .max_retries = 1000, .retry_delay = 200ms, .max_delay = 200ms}});
    });
    // About ten retries, each with a read and perhaps an attempt to listen.
    EXPECT_LT(proxy.calls() - before, 60);
  }
}

TEST_F(FirestoreWaiting, ReleaseByTypeScriptWakesWaiter) {
  auto direct = client();
  put_lock("key", LockId::generate(), 1h);
  auto waiting = direct.async_acquire("key", without_retries, asio::use_future);
  ASSERT_EQ(waiting.wait_for(500ms), std::future_status::timeout);
  outside.remove("locks/key");
  expect_served(waiting);
}

}  // namespace
}  // namespace syncguard::testing
