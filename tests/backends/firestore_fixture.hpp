// What tests of Firestore share.
#pragma once

#include "eventually.hpp"
#include "expect_error.hpp"
#include "firestore_outside.hpp"
#include "patience.hpp"
#include "servers/firestore_proxy.hpp"

#include <syncguard/firestore.hpp>
#include <syncguard/syncguard.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace syncguard::testing {

using namespace std::chrono_literals;

struct FirestoreTest : public ::testing::Test {
  FirestoreEmulator& emulator = shared_emulator();
  const std::string project = next_project();
  const FirestoreOutsider outside{emulator, project};

  [[nodiscard]] Locks client(const std::string& more_options = "", ClientOptions options = {}) const {
    return open_patiently(emulator.url(project, more_options), std::move(options));
  }
  // A lock of somebody else's that ends in so long.
  void put_lock(const Key& key, const LockId& id, std::chrono::milliseconds ends_in, Fence fence = Fence(1)) const {
    const auto now = system_now();
    outside.put("locks/" + key.str(), fields_of_lock({key, id, now + ends_in, now, fence}));
  }
};

}  // namespace syncguard::testing
