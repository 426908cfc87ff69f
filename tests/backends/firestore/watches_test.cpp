#include "backends/firestore/watches.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace syncguard::firestore {
namespace {

using Change = wire::TargetChange;

struct FirestoreWatches : ::testing::Test {
  void wait_for(const std::string& document) {
    watches.add(document, LockId::generate(), [this] { ++woken; });
  }
  void receive(const wire::ListenResponse& response) {
    for (const auto& wake : watches.received(response, {})) wake();
  }
  void receive(Change::TargetChangeType type, int status = 0) {
    wire::ListenResponse response;
    response.mutable_target_change()->set_target_change_type(type);
    if (status != 0) response.mutable_target_change()->mutable_cause()->set_code(status);
    receive(response);
  }

  Watches watches;
  int woken = 0;
};

TEST_F(FirestoreWatches, DeletionWakesAllWaitersOfDocument) {
  wait_for("a");
  wait_for("a");
  wait_for("b");
  receive(Change::CURRENT);
  wire::ListenResponse response;
  response.mutable_document_delete()->set_document("a");
  receive(response);
  EXPECT_EQ(woken, 2);
  EXPECT_TRUE(watches.find("a")->reported_deleted);
  EXPECT_FALSE(watches.find("b")->reported_deleted);
}

TEST_F(FirestoreWatches, RemovedTargetWakesActiveWaitersAndIsForgotten) {
  wait_for("a");
  receive(Change::CURRENT);
  receive(Change::REMOVE, 7);
  EXPECT_EQ(woken, 1);
  EXPECT_EQ(watches.find("a"), nullptr);
  ASSERT_TRUE(watches.failure());
  EXPECT_EQ(watches.failure()->code(), ErrorCode::auth_failed);
}

// A peer may send any number as the status. The undefined-behavior sanitizer checks that none becomes an enumerator
// that does not exist.
TEST_F(FirestoreWatches, UnknownStatusIsInternalError) {
  for (const int status : {17, 1000, -1, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()}) {
    receive(Change::REMOVE, status);
    ASSERT_TRUE(watches.failure()) << status;
    EXPECT_EQ(watches.failure()->code(), ErrorCode::internal) << status;
  }
}

}  // namespace
}  // namespace syncguard::firestore
