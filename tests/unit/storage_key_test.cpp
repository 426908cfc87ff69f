#include "support/vectors.hpp"

#include <syncguard/error.hpp>
#include <syncguard/lock_id.hpp>
#include <syncguard/storage_key.hpp>

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace syncguard::core {
namespace {

using syncguard::testing::load_vectors;

// The result of make, or the name of the error that it throws.
template <typename Make>
nlohmann::json outcome(Make make) {
  try {
    return {{"result", make()}};
  } catch (const LockError& error) {
    return {{"error", to_string(error.code())}};
  }
}

TEST(StorageKey, MatchesTypeScriptVectors) {
  const auto vectors = load_vectors("storage_keys");
  ASSERT_GT(vectors.size(), 400U);
  for (const auto& vector : vectors) {
    const auto prefix = vector.at("prefix").get<std::string>();
    const Key key(vector.at("key").get<std::string>());
    const StorageLimit limit{vector.at("limit").get<std::size_t>(), vector.at("reserve").get<std::size_t>()};
    EXPECT_EQ(outcome([&] { return lock_storage_key(prefix, key, limit); }), vector.at("lockKey")) << vector.dump();
    if (vector.contains("fenceKey")) {
      EXPECT_EQ(outcome([&] { return fence_storage_key(prefix, lock_storage_key(prefix, key, limit), limit); }),
                vector.at("fenceKey"))
          << vector.dump();
    }
    if (vector.contains("indexKey")) {
      EXPECT_EQ(outcome([&] { return make_storage_key(prefix, "id:AAAAAAAAAAAAAAAAAAAAAA", limit); }),
                vector.at("indexKey"))
          << vector.dump();
    }
  }
}

TEST(StorageKey, LimitsOfStoresAreThoseOfTypeScript) {
  std::set<std::pair<std::size_t, std::size_t>> theirs;
  for (const auto& vector : load_vectors("storage_keys")) {
    theirs.emplace(vector.at("limit").get<std::size_t>(), vector.at("reserve").get<std::size_t>());
  }
  for (const auto& ours :
       {redis_storage_limit, postgres_storage_limit, sqlite_storage_limit, firestore_storage_limit}) {
    EXPECT_TRUE(theirs.contains({ours.limit, ours.reserve})) << ours.limit << '/' << ours.reserve;
  }
  EXPECT_EQ(redis_storage_limit.limit, 1000U);
  EXPECT_EQ(redis_storage_limit.reserve, 26U);
  EXPECT_EQ(postgres_storage_limit.limit, 1700U);
  EXPECT_EQ(sqlite_storage_limit.limit, 1700U);
  EXPECT_EQ(firestore_storage_limit.limit, 1500U);
}

TEST(StorageKey, MatchesKeysStoredByTypeScript) {
  const auto wire = load_vectors("wire");
  for (const auto& entry : wire.at("redis")) {
    const Key key(entry.at("key").get<std::string>());
    const auto lock_key = lock_storage_key("syncguard", key, redis_storage_limit);
    const auto id = entry.at("acquire").at("lockId").get<std::string>();
    const std::set<std::string> ours = {lock_key, fence_storage_key("syncguard", lock_key, redis_storage_limit),
                                        make_storage_key("syncguard", "id:" + id, redis_storage_limit)};
    std::set<std::string> theirs;
    for (const auto& [name, value] : entry.at("stored").items()) theirs.insert(name);
    EXPECT_EQ(ours, theirs);
    EXPECT_TRUE(LockId::is_valid(id));
  }
  for (const auto& row : wire.at("postgres").at("rows")) {
    const auto lock_key = lock_storage_key("", Key(row.at("key").get<std::string>()), postgres_storage_limit);
    EXPECT_EQ(lock_key, row.at("lock").at("key"));
    EXPECT_EQ(fence_storage_key("", lock_key, postgres_storage_limit), row.at("fence").at("fence_key"));
  }
  for (const auto& entry : wire.at("firestore")) {
    const auto document = lock_storage_key("", Key(entry.at("key").get<std::string>()), firestore_storage_limit);
    const std::string root = "projects/vec/databases/(default)/documents/";
    const auto has = [](const nlohmann::json& documents, const std::string& name) {
      return std::any_of(documents.begin(), documents.end(), [&](const auto& each) { return each.at("name") == name; });
    };
    EXPECT_TRUE(has(entry.at("locks"), root + "locks/" + document));
    EXPECT_TRUE(has(entry.at("fence_counters"),
                    root + "fence_counters/" + fence_storage_key("", document, firestore_storage_limit)));
  }
}

std::string random_text(std::mt19937& random, std::size_t longest) {
  static constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz:/_-{}0123456789";
  std::string text(1 + random() % longest, ' ');
  for (char& letter : text) letter = letters[random() % letters.size()];
  return text;
}

TEST(StorageKey, NeverExceedsItsLimit) {
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): repeatable on purpose
  for (int round = 0; round < 20'000; ++round) {
    const auto prefix = random_text(random, 60);
    const Key key(random_text(random, 512));
    const StorageLimit limit{60 + random() % 600, random() % 30};
    try {
      const auto lock_key = lock_storage_key(prefix, key, limit);
      ASSERT_LE(lock_key.size() + limit.reserve, limit.limit);
      ASSERT_LE(fence_storage_key(prefix, lock_key, limit).size() + limit.reserve, limit.limit);
    } catch (const LockError& error) {
      ASSERT_EQ(error.code(), ErrorCode::invalid_argument);
      ASSERT_GT(prefix.size() + 1 + 22 + limit.reserve + 2, limit.limit) << "rejected although a hash would fit";
    }
  }
}

TEST(StorageKey, DistinctKeysNeverShareAFenceCounter) {
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): repeatable on purpose
  // Some of the keys are longer than this limit: hashed and unhashed storage keys must not collide.
  const StorageLimit limit{200, 10};
  std::map<std::string, std::string> counter_owners;
  for (int round = 0; round < 50'000; ++round) {
    const Key key(random_text(random, 400));
    const auto counter = fence_storage_key("p", lock_storage_key("p", key, limit), limit);
    const auto [owner, inserted] = counter_owners.try_emplace(counter, key.str());
    ASSERT_EQ(owner->second, key.str());
  }
}

}  // namespace
}  // namespace syncguard::core
