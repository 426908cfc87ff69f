// What Firestore says about its fitness for locks.

#include "findings.hpp"
#include "firestore_fixture.hpp"

namespace syncguard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

struct FirestoreDiagnosis : public FirestoreTest {};

TEST_F(FirestoreDiagnosis, AnEmulatorIsFineButForBeingOne) {
  auto locks = client();
  expect_fine(locks, {"reachable", "latency", "clock skew", "index of lockId", "authorised", "listening"});
  EXPECT_THAT(verdict_on(locks.diagnose(), "server"), StartsWith("warning: an emulator"));
  EXPECT_THAT(outside.list("locks"), IsEmpty()) << "nothing is left behind";
  EXPECT_THAT(outside.list("fence_counters"), IsEmpty());
}

TEST_F(FirestoreDiagnosis, FailsOnABadClock) {
  const auto expect_verdict_with = [this](std::chrono::milliseconds skew, const std::string& verdict) {
    FirestoreOptions options;
    options.project = project;
    options.emulator = emulator.address();
    options.clock = [skew] { return system_now() + skew; };
    Locks locks(make_firestore_backend(options, Log([](LogLevel, std::string_view) {})), patient_options());
    std::string found;
    // A slow answer hides a part of it.
    EXPECT_TRUE(eventually([&] {
      found = verdict_on(locks.diagnose(), "clock skew");
      return found.starts_with(verdict);
    })) << found;
  };
  expect_verdict_with(300ms, "warning");
  expect_verdict_with(-800ms, "failure");
  expect_verdict_with(3s, "failure");
}

TEST_F(FirestoreDiagnosis, FailsOnWhatCannotBeReachedOrRefuses) {
  FirestoreProxy proxy(emulator.address());
  const auto refuse = [&](const std::string& method, grpc::StatusCode code) {
    proxy.set_script([=](const std::string& called) {
      return called == method ? FirestoreProxy::refuse(code) : FirestoreProxy::forward();
    });
    return open_patiently(proxy.url(project)).diagnose();
  };
  EXPECT_THAT(verdict_on(refuse("BatchGetDocuments", grpc::StatusCode::UNAVAILABLE), "reachable"),
              StartsWith("failure"));
  EXPECT_THAT(verdict_on(refuse("BatchGetDocuments", grpc::StatusCode::PERMISSION_DENIED), "authorised"),
              HasSubstr("roles/datastore.user"));
  EXPECT_THAT(verdict_on(refuse("Commit", grpc::StatusCode::PERMISSION_DENIED), "authorised"), StartsWith("failure"))
      << "may read, but not write";
  EXPECT_THAT(verdict_on(refuse("RunQuery", grpc::StatusCode::FAILED_PRECONDITION), "configuration"),
              HasSubstr("index"));
  EXPECT_THAT(verdict_on(refuse("Listen", grpc::StatusCode::UNAVAILABLE), "listening"), StartsWith("warning"));
}

}  // namespace
}  // namespace syncguard::testing
