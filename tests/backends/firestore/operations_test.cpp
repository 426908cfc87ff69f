// The data in Firestore, compatibility with the TypeScript library, and options.

#include "fixture.hpp"
#include "support/fork_when_idle.hpp"
#include "support/is_granted.hpp"
#include "support/vectors.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

namespace syncguard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

struct Firestore : public FirestoreTest {};

// ---------------------------------------------------------------------------------------------------------------------
// The wire format

// The names of the document's fields and the types of their values.
std::map<std::string, std::string> types_of(const json& document) {
  std::map<std::string, std::string> types;
  for (const auto& [name, value] : document.at("fields").items()) types[name] = value.begin().key();
  return types;
}

std::string id_of(const json& document) {
  const std::string name = document.at("name");
  const std::string root = "/documents/";
  return name.substr(name.find(root) + root.size());
}

TEST_F(Firestore, StoresSameDocumentsAsTypeScript) {
  const auto vectors = load_vectors("wire").at("firestore");
  ASSERT_FALSE(vectors.empty());
  for (const auto& recorded : vectors) {
    const Key key(recorded.at("key").get<std::string>());
    auto locks = client("&fences=counter");
    const auto lease = locks.acquire(key, {.ttl = 30s});
    const auto& their_lock = recorded.at("locks").at(0);
    const auto our_lock = outside.get(id_of(their_lock));
    ASSERT_FALSE(our_lock.is_null()) << their_lock;
    auto their_types = types_of(their_lock);
    their_types["holder"] = "stringValue";  // only ours has a label
    EXPECT_EQ(types_of(our_lock), their_types);
    auto fields = fields_of_lock({key, lease.id(), lease.expires_at(), lease.expires_at() - 30s, Fence(1)});
    fields["holder"] = text_value(locks.lookup(key)->holder);
    EXPECT_EQ(our_lock["fields"], fields);
    const auto counter_id = "fence_counters/fence:" + key.str();
    const auto our_counter = outside.get(counter_id);
    ASSERT_FALSE(our_counter.is_null());
    const auto& their_counters = recorded.at("fence_counters");
    const auto theirs = std::find_if(their_counters.begin(), their_counters.end(),
                                     [&](const json& counter) { return id_of(counter) == counter_id; });
    ASSERT_NE(theirs, their_counters.end());
    EXPECT_EQ(types_of(our_counter), types_of(*theirs));
    EXPECT_EQ(our_counter["fields"],
              (json{{"fence", text_value(Fence(1).str())}, {"keyDebug", text_value(key.str())}}));
  }
}

TEST_F(Firestore, ReadsDocumentsOfTypeScript) {
  auto locks = client("&fences=counter");
  const auto vectors = load_vectors("wire").at("firestore");
  ASSERT_FALSE(vectors.empty());
  for (const auto& recorded : vectors) {
    const Key key(recorded.at("key").get<std::string>());
    const LockId id(recorded.at("acquire").at("lockId").get<std::string>());
    auto fields = recorded.at("locks").at(0).at("fields");
    fields["expiresAtMs"] = time_value(system_now() + 1h);
    outside.put(id_of(recorded.at("locks").at(0)), fields);
    for (const auto& counter : recorded.at("fence_counters")) outside.put(id_of(counter), counter.at("fields"));

    EXPECT_TRUE(locks.is_locked(key));
    EXPECT_FALSE(is_granted(locks.try_acquire(key)));
    ASSERT_TRUE(locks.admin().get_by_key_raw(key));
    EXPECT_EQ(locks.admin().get_by_key_raw(key)->lock_id, id);
    EXPECT_EQ(locks.admin().get_by_id_raw(id)->key, key);
    EXPECT_TRUE(locks.extend(id, 1h));
    EXPECT_TRUE(locks.release(id));
    EXPECT_EQ(locks.try_acquire(key).value().fence(), Fence(2)) << "the fence counter must continue";
  }
}

TEST_F(Firestore, FencesGrowAfterCounterWasDeleted) {
  auto locks = client();
  Fence newest;
  for (int i = 0; i < 3; ++i) {
    const auto fence = locks.acquire("key").fence();
    EXPECT_GT(fence, newest);
    newest = fence;
  }
  outside.remove("fence_counters/fence:key");
  EXPECT_GT(locks.acquire("key").fence(), newest);
  EXPECT_EQ(client("&fences=counter").acquire("another").fence(), Fence(1));
}

TEST_F(Firestore, KeysThatAreInvalidIdsAreStoredByHash) {
  auto locks = client();
  std::vector<Lease> leases;
  const std::vector<std::string> keys = {"a/b", "a/b/c", ".", "..", "__x__", "____", "/", "locks/x"};
  for (const auto& key : keys) {
    leases.push_back(locks.acquire(key));
    EXPECT_TRUE(locks.is_locked(key)) << key;
    EXPECT_FALSE(is_granted(locks.try_acquire(key))) << key;
    EXPECT_EQ(locks.admin().get_by_id_raw(leases.back().id())->key.str(), key);
  }
  const auto ids = outside.list("locks");
  EXPECT_EQ(ids.size(), keys.size());
  for (const auto& id : ids) {
    EXPECT_EQ(id.size(), 22U);
    EXPECT_FALSE(outside.get("fence_counters/fence:" + id).is_null()) << "the counter's id must use the same hash";
  }
  for (auto& lease : leases) EXPECT_TRUE(lease.release());
  // Unusual keys that are valid document ids.
  for (const std::string key : {"...", "__x", "x__", "___", "a b", "ä", "%2F"}) {
    const auto lease = locks.acquire(key);
    EXPECT_FALSE(outside.get("locks/" + Key(key).str()).is_null()) << key;
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Invalid and foreign documents

TEST_F(Firestore, LiveDocumentWinsAmongDocumentsWithSameLockId) {
  Warnings warnings;
  auto locks = client("", warnings.options());
  const auto id = LockId::generate();
  put_lock("live", id, 1h);
  put_lock("dead", id, -1h);
  EXPECT_EQ(locks.admin().get_by_id_raw(id)->key, Key("live"));
  // A lock may be removed only when it expired more than two seconds ago.
  const auto keeps_recently_expired = [&] {
    put_lock("hardly dead", id, -1100ms);
    EXPECT_TRUE(locks.extend(id, 1h));
    return outside.list("locks") == std::vector<std::string>{"hardly dead", "live"};
  };
  EXPECT_TRUE(succeeds_once(keeps_recently_expired)) << ::testing::PrintToString(outside.list("locks"));
  EXPECT_TRUE(locks.release(id));
  EXPECT_THAT(outside.list("locks"), ::testing::Not(::testing::Contains("live")));
  EXPECT_THAT(warnings.all(), ElementsAre(HasSubstr("same lockId")));
  EXPECT_THAT(warnings.all()[0], ::testing::Not(HasSubstr(id.str())));
}

TEST_F(Firestore, TwoLiveDocumentsWithSameLockIdAreLeftAlone) {
  Warnings warnings;
  auto locks = client("", warnings.options());
  const auto id = LockId::generate();
  put_lock("one", id, 1h);
  put_lock("two", id, 1h);
  EXPECT_FALSE(locks.release(id));
  EXPECT_FALSE(locks.extend(id, 30s));
  EXPECT_FALSE(locks.admin().get_by_id(id));
  EXPECT_FALSE(locks.admin().owns(id));
  EXPECT_THAT(outside.list("locks"), UnorderedElementsAre("one", "two"));
  EXPECT_EQ(warnings.all().size(), 1U);
}

TEST_F(Firestore, ForeignDocumentIsNeverOverwritten) {
  auto locks = client();
  const json foreign = {{"note", text_value("of another application")}};
  outside.put("locks/key", foreign);
  expect_error(ErrorCode::internal, [&] { (void)locks.try_acquire("key"); });
  expect_error(ErrorCode::internal, [&] { (void)locks.is_locked("key"); });
  expect_error(ErrorCode::internal, [&] { (void)locks.admin().get_by_key("key"); });
  EXPECT_EQ(outside.get("locks/key")["fields"], foreign);
  EXPECT_THAT(outside.list("fence_counters"), IsEmpty());

  // A field with a value of another type.
  auto wrong = fields_of_lock({"key", LockId::generate(), system_now(), system_now(), Fence(1)});
  wrong["expiresAtMs"] = text_value("soon");
  outside.put("locks/key", wrong);
  expect_error(ErrorCode::internal, [&] { (void)locks.try_acquire("key"); });
}

TEST_F(Firestore, DamagedCounterIsNeverOverwritten) {
  auto locks = client();
  outside.put("fence_counters/fence:key", {{"fence", {{"integerValue", "7"}}}});
  expect_error(ErrorCode::internal, [&] { (void)locks.try_acquire("key"); });
  EXPECT_THAT(outside.list("locks"), IsEmpty());
  EXPECT_EQ(outside.get("fence_counters/fence:key")["fields"]["fence"], (json{{"integerValue", "7"}}));
}

TEST_F(Firestore, CountersAreNeverDeleted) {
  auto locks = client("&cleanup_in_is_locked=true");
  for (const std::string key : {"a", "b"}) {
    EXPECT_TRUE(locks.acquire(key).release());
    put_lock(key, LockId::generate(), -1h);
    (void)locks.is_locked(key);
  }
  EXPECT_TRUE(eventually([&] { return outside.list("locks").size() < 2; }))
      << "at least one lock must be removed; there is at most one cleanup per second";
  EXPECT_THAT(outside.list("fence_counters"), UnorderedElementsAre("fence:a", "fence:b"));
}

// ---------------------------------------------------------------------------------------------------------------------
// Options

TEST_F(Firestore, UsesConfiguredCollections) {
  auto locks = client("&collection=teams/a/locks&fence_collection=teams/a/fences");
  auto others = client("&collection=teams/b/locks&fence_collection=teams/b/fences");
  auto lease = locks.acquire("key");
  EXPECT_FALSE(outside.get("teams/a/locks/key").is_null());
  EXPECT_FALSE(outside.get("teams/a/fences/fence:key").is_null());
  EXPECT_TRUE(others.try_acquire("key"));
  EXPECT_TRUE(locks.admin().owns(lease.id()));
  EXPECT_FALSE(others.admin().owns(lease.id()));
  EXPECT_TRUE(lease.release());
}

TEST(FirestoreOptions, InvalidOptionsAreRejected) {
  const auto refuses = [](const std::string& url, const std::string& word) {
    const auto error = error_of([&] { (void)open(url); });
    ASSERT_TRUE(error) << url;
    EXPECT_EQ(error->code(), ErrorCode::invalid_argument) << url;
    EXPECT_THAT(error->what(), HasSubstr(word)) << url;
  };
  refuses("firestore://p?collection=x&fence_collection=x", "same collection");
  refuses("firestore://p?collection=fence_counters", "same collection");
  for (const std::string name : {"", "a/b", "a//b", "/a", "a/", ".", "a/../b", "__a__", "%FF"}) {
    refuses("firestore://p?collection=" + name, "collection");
    refuses("firestore://p?fence_collection=" + name, "fence_collection");
  }
  refuses("firestore:p", "firestore://PROJECT/DATABASE");
  refuses("firestore://p%2Fq", "project");
  refuses("firestore://p/d/e", "database");
  refuses("firestore://p?clock_policy=warn", "clock_policy");
  refuses("firestore://p?colection=x", "colection");
  refuses("firestore://p?endpoint=", "endpoint");
  unsetenv("GOOGLE_CLOUD_PROJECT");
  refuses("firestore:", "GOOGLE_CLOUD_PROJECT");
}

TEST_F(Firestore, ReadsProjectAndEmulatorFromEnvironment) {
  setenv("GOOGLE_CLOUD_PROJECT", project.c_str(), 1);
  setenv("FIRESTORE_EMULATOR_HOST", emulator.address().c_str(), 1);
  {
    auto locks = open_with_long_timeout("firestore:");
    const auto lease = locks.acquire("key");
    EXPECT_FALSE(outside.get("locks/key").is_null());
  }
  unsetenv("GOOGLE_CLOUD_PROJECT");
  unsetenv("FIRESTORE_EMULATOR_HOST");
}

TEST_F(Firestore, DatabasesOfOneProjectAreIndependent) {
  auto locks = open_with_long_timeout("firestore://" + project + "/(default)?emulator=" + emulator.address());
  auto others = open_with_long_timeout("firestore://" + project + "/other-database?emulator=" + emulator.address());
  const auto lease = locks.acquire("key");
  EXPECT_TRUE(others.try_acquire("key"));

  // Google uses these headers for routing; the emulator ignores them.
  FirestoreProxy proxy(emulator.address());
  (void)open_with_long_timeout("firestore://example.com:p/other-database?emulator=" + proxy.address()).is_locked("key");
  EXPECT_EQ(proxy.header("x-goog-request-params"), "project_id=example.com%3Ap&database_id=other-database");
  EXPECT_EQ(proxy.header("google-cloud-resource-prefix"), "projects/example.com:p/databases/other-database");
}

TEST_F(Firestore, ForkedChildIsRejectedIfParentUsedClient) {
  EXPECT_FALSE(client().is_locked("key"));
  const pid_t child = fork_when_idle();
  if (child == 0) {
    const auto error = error_of([this] { (void)client().is_locked("key"); });
    _exit(error && error->code() == ErrorCode::invalid_argument ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// The last test of this suite, because it changes the environment.
TEST(FirestoreOptions, MissingCredentialsErrorSaysHowToGetThem) {
  unsetenv("FIRESTORE_EMULATOR_HOST");
  setenv("GOOGLE_APPLICATION_CREDENTIALS", "no-such-file.json", 1);
  setenv("HOME", "no-such-folder", 1);
  setenv("NO_GCE_CHECK", "true", 1);
  auto locks = open("firestore://project?operation_timeout=20s");
  const auto error = error_of([&] { (void)locks.is_locked("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::auth_failed) << error->what();
  EXPECT_THAT(error->what(), HasSubstr("GOOGLE_APPLICATION_CREDENTIALS"));
  expect_error(ErrorCode::auth_failed, [&] { (void)locks.is_locked("key"); });
}

TEST_F(Firestore, MetricsCountConnection) {
  const Metrics metrics;
  const auto locks = client("", {.metrics = metrics});
  EXPECT_EQ(metrics.snapshot().at(0).connections_open, 0U) << "the first operation connects";
  EXPECT_FALSE(locks.is_locked("key"));
  EXPECT_EQ(metrics.snapshot().at(0).connections_open, 1U);
}

}  // namespace
}  // namespace syncguard::testing
