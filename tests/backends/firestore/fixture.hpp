// Shared by the tests of the Firestore backend.
#pragma once

#include "rest_client.hpp"
#include "servers/firestore_proxy.hpp"
#include "support/eventually.hpp"
#include "support/expect_error.hpp"
#include "support/long_timeouts.hpp"

#include <syncguard/firestore.hpp>
#include <syncguard/syncguard.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace syncguard::testing {

using namespace std::chrono_literals;

// Collects the warnings of a log.
struct Warnings {
  mutable std::mutex mutex;
  std::vector<std::string> messages;

  const Log log{[this](LogLevel level, std::string_view message) {
    const std::lock_guard lock(mutex);
    if (level == LogLevel::warning) messages.emplace_back(message);
  }};

  [[nodiscard]] ClientOptions options() const {
    ClientOptions options;
    options.log = log;
    return options;
  }
  [[nodiscard]] std::vector<std::string> all() const {
    EXPECT_TRUE(log.flush(20s));
    const std::lock_guard lock(mutex);
    return messages;
  }
};

struct FirestoreTest : public ::testing::Test {
  FirestoreEmulator& emulator = shared_emulator();
  const std::string project = next_project();
  const FirestoreRestClient outside{emulator, project};

  [[nodiscard]] Locks client(const std::string& more_options = "", ClientOptions options = {}) const {
    return open_with_long_timeout(emulator.url(project, more_options), std::move(options));
  }
  // Stores a lock of another client.
  void put_lock(const Key& key, const LockId& id, std::chrono::milliseconds expires_in, Fence fence = Fence(1)) const {
    const auto now = system_now();
    outside.put("locks/" + key.str(), fields_of_lock({key, id, now + expires_in, now, fence}));
  }
};

}  // namespace syncguard::testing
