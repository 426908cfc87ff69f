// Waiters, and what a server tells them.

#include "firestore_fixture.hpp"

#include <syncguard/async.hpp>

#include <asio/use_future.hpp>

#include <future>

namespace syncguard::testing {
namespace {

void tell_deleted(std::int32_t target, const std::string& document, firestore::wire::ListenResponse& response) {
  response.mutable_document_delete()->set_document(document);
  response.mutable_document_delete()->add_removed_target_ids(target);
}
void tell_there(std::int32_t target, const std::string& document, firestore::wire::ListenResponse& response) {
  response.mutable_document_change()->mutable_document()->set_name(document);
  response.mutable_document_change()->add_target_ids(target);
}

// A retry alone would come far too late for the tests.
constexpr AcquireOptions until_told{
    .wait = {.timeout = 10min, .max_retries = 1000, .retry_delay = 5min, .max_delay = 5min}};

// Through a proxy whose Listen streams the test feeds.
struct FirestoreWaiting : public FirestoreTest {
  FirestoreProxy proxy{emulator.address()};
  Locks locks = open(proxy.url(project, "&operation_timeout=20s"));

  FirestoreWaiting() {
    proxy.set_script([](const std::string&) { return FirestoreProxy::forward(); });
  }
  // One that waits for a key that somebody else holds, until it is told, and is about to.
  [[nodiscard]] std::future<Lease> waiter(const std::string& key) {
    put_lock(key, LockId::generate(), 1h);
    const int before = proxy.awaited();
    const int reads = proxy.calls("BatchGetDocuments");
    auto waiting = locks.async_acquire(key, until_told, asio::use_future);
    // It has looked, asked to be told, and looked again.
    EXPECT_TRUE(eventually([&] { return proxy.awaited() > before && proxy.calls("BatchGetDocuments") >= reads + 2; }));
    EXPECT_EQ(waiting.wait_for(50ms), std::future_status::timeout);
    return waiting;
  }
  void expect_served(std::future<Lease>& waiting) {
    ASSERT_EQ(waiting.wait_for(60s), std::future_status::ready);
    (void)waiting.get();
  }
  void expect_served_once_told(std::future<Lease>& waiting) {
    outside.remove("locks/key");
    proxy.tell(tell_deleted);
    expect_served(waiting);
  }
};

TEST_F(FirestoreWaiting, OneStreamServesAllThatAClientWaitsFor) {
  constexpr int keys = 50;
  std::vector<std::future<Lease>> waiting;
  for (int i = 0; i < keys; ++i) {
    waiting.push_back(waiter("key" + std::to_string(i)));
  }
  EXPECT_EQ(proxy.streams(), 1);
  EXPECT_LT(proxy.calls("Listen"), 5) << "one, unless the machine was so slow that the stream was taken for dead";
  for (int i = 0; i < keys; ++i) outside.remove("locks/key" + std::to_string(i));
  proxy.tell(tell_deleted);
  for (auto& one : waiting) expect_served(one);
  EXPECT_TRUE(eventually([&] { return proxy.awaited() == 0; })) << "what nobody awaits is asked for no longer";
}

TEST_F(FirestoreWaiting, AWaiterIsToldInWhateverWayTheServerTells) {
  const std::vector<std::function<void(std::int32_t, const std::string&, firestore::wire::ListenResponse&)>> ways = {
      tell_deleted,
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
      // It tells no more of this target, and says why.
      [](std::int32_t target, const std::string&, firestore::wire::ListenResponse& response) {
        response.mutable_target_change()->set_target_change_type(firestore::wire::TargetChange::REMOVE);
        response.mutable_target_change()->add_target_ids(target);
        response.mutable_target_change()->mutable_cause()->set_code(grpc::StatusCode::RESOURCE_EXHAUSTED);
      }};
  for (const auto& way : ways) {
    auto waiting = waiter("key");
    outside.remove("locks/key");
    proxy.tell(way);
    expect_served(waiting);
  }
}

TEST_F(FirestoreWaiting, ALockThatWasThereForAMomentIsLookedAtAgain) {
  auto waiting = waiter("key");
  // The server says that it is gone when somebody else has taken it again, and says nothing when that one goes, too:
  // gone it was, and gone it is.
  const int reads = proxy.calls("BatchGetDocuments");
  proxy.tell(tell_deleted);
  ASSERT_TRUE(eventually([&] { return proxy.calls("BatchGetDocuments") > reads; }));
  outside.remove("locks/key");
  expect_served(waiting);
}

TEST_F(FirestoreWaiting, ALockThatIsThereIsNotLookedAt) {
  auto waiting = waiter("key");
  const int reads = proxy.calls("BatchGetDocuments");
  proxy.tell(tell_there);
  EXPECT_EQ(waiting.wait_for(300ms), std::future_status::timeout);
  EXPECT_EQ(proxy.calls("BatchGetDocuments"), reads);
  expect_served_once_told(waiting);
}

TEST_F(FirestoreWaiting, AStreamThatIsCutIsOpenedAgain) {
  auto waiting = waiter("key");
  const int reads = proxy.calls("BatchGetDocuments");
  proxy.cut_streams();
  ASSERT_TRUE(eventually([&] { return proxy.calls("Listen") >= 2 && proxy.awaited() == 1; }));
  ASSERT_TRUE(eventually([&] { return proxy.calls("BatchGetDocuments") >= reads + 2; }))
      << "nobody knows what was missed";
  expect_served_once_told(waiting);
}

TEST_F(FirestoreWaiting, AStreamThatStaysSilentIsReplaced) {
  std::atomic<int> streams{0};
  proxy.set_script([&](const std::string& method) {
    return method == "Listen" && streams++ == 0 ? FirestoreProxy::hang() : FirestoreProxy::forward();
  });
  auto waiting = waiter("key");
  EXPECT_GE(streams, 2);
  expect_served_once_told(waiting);
}

TEST_F(FirestoreWaiting, AWaiterIsToldThatTheLockChangedHands) {
  auto waiting = waiter("key");
  const auto tell_holder = [&](const LockId& holder) {
    proxy.tell([&](std::int32_t target, const std::string& document, firestore::wire::ListenResponse& response) {
      tell_there(target, document, response);
      auto& fields = *response.mutable_document_change()->mutable_document()->mutable_fields();
      fields["lockId"].set_string_value(holder.str());
    });
  };
  const int reads = proxy.calls("BatchGetDocuments");
  const auto holder = LockId::generate();
  tell_holder(holder);
  tell_holder(holder);  // an extend
  EXPECT_EQ(waiting.wait_for(100ms), std::future_status::timeout);
  EXPECT_EQ(proxy.calls("BatchGetDocuments"), reads);
  // It was free in between, and nobody said so.
  outside.remove("locks/key");
  tell_holder(LockId::generate());
  expect_served(waiting);
}

TEST_F(FirestoreWaiting, AServerThatCannotTellIsNotAskedAllTheTime) {
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
    // Ten retries or a few more, each with a look and perhaps an attempt to listen.
    EXPECT_LT(proxy.calls() - before, 60);
  }
}

TEST_F(FirestoreWaiting, AReleaseByTheOtherLibraryWakesAWaiter) {
  auto direct = client();
  put_lock("key", LockId::generate(), 1h);
  auto waiting = direct.async_acquire("key", until_told, asio::use_future);
  ASSERT_EQ(waiting.wait_for(500ms), std::future_status::timeout);
  outside.remove("locks/key");
  expect_served(waiting);
}

}  // namespace
}  // namespace syncguard::testing
