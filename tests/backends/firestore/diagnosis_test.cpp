// diagnose() on Firestore.

#include "fixture.hpp"
#include "support/findings.hpp"

#include <thread>

namespace syncguard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

struct FirestoreDiagnosis : public FirestoreTest {};

TEST_F(FirestoreDiagnosis, EmulatorPassesWithAWarning) {
  auto locks = client();
  expect_fine(locks, {"reachable", "latency", "clock skew", "index of lockId", "authorized", "fences", "listening"});
  EXPECT_THAT(verdict_on(locks.admin().diagnose(), "server"), StartsWith("warning: an emulator"));
  EXPECT_THAT(outside.list("locks"), IsEmpty()) << "the diagnosis must leave no documents behind";
  EXPECT_THAT(outside.list("fence_counters"), IsEmpty());
}

TEST_F(FirestoreDiagnosis, ReportsCountersAheadOfClock) {
  auto locks = client();
  EXPECT_EQ(verdict_on(locks.admin().diagnose(), "fence counters"), "fine: none is ahead of the clock");
  (void)locks.acquire("key");
  EXPECT_EQ(verdict_on(locks.admin().diagnose(), "fence counters"), "fine: none is ahead of the clock");
  outside.put("fence_counters/ahead", {{"fence", text_value("050000000000001")}, {"key", text_value("ahead")}});
  EXPECT_THAT(verdict_on(locks.admin().diagnose(), "fence counters"),
              StartsWith("warning: ahead of the clock, up to 050000000000001"));
  outside.put("fence_counters/another", {{"fence", text_value("not a fence")}});
  EXPECT_THAT(verdict_on(locks.admin().diagnose(), "fence counters"), StartsWith("fine: not examined"));
}

TEST_F(FirestoreDiagnosis, FailsOnSkewedClock) {
  const auto expect_verdict_with = [this](std::chrono::milliseconds skew, const std::string& verdict) {
    FirestoreOptions options;
    options.project = project;
    options.emulator = emulator.address();
    options.clock = [skew] { return system_now() + skew; };
    Locks locks(make_firestore_backend(options, Log([](LogLevel, std::string_view) {})), with_long_timeout());
    std::string found;
    // A slow reply hides a part of the skew.
    EXPECT_TRUE(eventually([&] {
      found = verdict_on(locks.admin().diagnose(), "clock skew");
      return found.starts_with(verdict);
    })) << found;
  };
  expect_verdict_with(300ms, "warning");
  expect_verdict_with(-800ms, "failure");
  expect_verdict_with(3s, "failure");
}

TEST_F(FirestoreDiagnosis, FailsIfRepliesAreTooSlowToCompareClocks) {
  FirestoreProxy proxy(emulator.address());
  proxy.set_script([](const std::string& method) {
    if (method == "BatchGetDocuments") std::this_thread::sleep_for(1s);
    return FirestoreProxy::forward();
  });
  auto locks = open_with_long_timeout(proxy.url(project));
  // The other requests are fast, but come later.
  EXPECT_THAT(verdict_on(locks.admin().diagnose(), "clock skew"),
              ::testing::AllOf(StartsWith("failure: this host's clock"), HasSubstr("replies take too long")));
}

TEST_F(FirestoreDiagnosis, FailsIfUnreachableOrUnauthorized) {
  FirestoreProxy proxy(emulator.address());
  const auto refuse = [&](const std::string& method, grpc::StatusCode code) {
    proxy.set_script([=](const std::string& called) {
      return called == method ? FirestoreProxy::refuse(code) : FirestoreProxy::forward();
    });
    return open_with_long_timeout(proxy.url(project)).admin().diagnose();
  };
  EXPECT_THAT(verdict_on(refuse("BatchGetDocuments", grpc::StatusCode::UNAVAILABLE), "reachable"),
              StartsWith("failure"));
  EXPECT_THAT(verdict_on(refuse("BatchGetDocuments", grpc::StatusCode::PERMISSION_DENIED), "authorized"),
              HasSubstr("roles/datastore.user"));
  EXPECT_THAT(verdict_on(refuse("Commit", grpc::StatusCode::PERMISSION_DENIED), "authorized"), StartsWith("failure"))
      << "a user that may read, but not write";
  const auto without_indexes = refuse("RunQuery", grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(verdict_on(without_indexes, "index of lockId"), StartsWith("failure"));
  EXPECT_THAT(verdict_on(without_indexes, "index of expiresAtMs"), StartsWith("warning"));
  const auto advice = std::ranges::find(without_indexes, "index of lockId", &Finding::check)->advice;
  EXPECT_THAT(advice, HasSubstr("gcloud firestore indexes fields update lockId --collection-group=locks"));
  EXPECT_THAT(verdict_on(refuse("Listen", grpc::StatusCode::UNAVAILABLE), "listening"), StartsWith("warning"));
}

}  // namespace
}  // namespace syncguard::testing
