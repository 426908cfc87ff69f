// What tests of Firestore share.
#pragma once

#include "eventually.hpp"
#include "expect_error.hpp"
#include "servers/firestore_emulator.hpp"
#include "servers/firestore_proxy.hpp"

#include <syncguard/firestore.hpp>
#include <syncguard/syncguard.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>

namespace syncguard::testing {

using namespace std::chrono_literals;
using nlohmann::json;

// A new one takes seconds to start: all tests share it, each with a project of its own.
inline FirestoreEmulator& shared_emulator() {
  static FirestoreEmulator instance;
  return instance;
}

inline std::string next_project() {
  static std::atomic<int> count{0};
  return "test-" + std::to_string(++count);
}

inline json text_value(const std::string& text) { return {{"stringValue", text}}; }
inline json time_value(Timestamp time) { return {{"integerValue", std::to_string(time.time_since_epoch().count())}}; }

// A lock as the other library stores it.
inline json fields_of_lock(const LockRecord& record) {
  return {{"lockId", text_value(record.lock_id.str())},
          {"expiresAtMs", time_value(record.expires_at)},
          {"acquiredAtMs", time_value(record.acquired_at)},
          {"key", text_value(record.key.str())},
          {"fence", text_value(record.fence.str())}};
}

inline Timestamp system_now() {
  return std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
}

struct FirestoreTest : public ::testing::Test {
  FirestoreEmulator& emulator = shared_emulator();
  const std::string project = next_project();
  const FirestoreOutsider outside{emulator, project};

  [[nodiscard]] Locks client(const std::string& more_options = "", ClientOptions options = {}) const {
    return open(emulator.url(project, more_options), std::move(options));
  }
  // A lock of somebody else's that ends in so long.
  void put_lock(const Key& key, const LockId& id, std::chrono::milliseconds ends_in, Fence fence = Fence(1)) const {
    const auto now = system_now();
    outside.put("locks/" + key.str(), fields_of_lock({key, id, now + ends_in, now, fence}));
  }
};

}  // namespace syncguard::testing
