// Shared by the tests of the SQLite backend.
#pragma once

#include "support/long_timeouts.hpp"
#include "support/sqlite_client.hpp"
#include "support/temporary_folder.hpp"

#include <syncguard/sqlite.hpp>
#include <syncguard/syncguard.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

namespace syncguard::testing {

struct Sqlite : ::testing::Test {
  TemporaryFolder folder;
  std::filesystem::path path = folder.path() / "new" / "locks.db";

  [[nodiscard]] Locks client(ClientOptions options = {}) const {
    return Locks(make_sqlite_backend({.path = path}), with_long_timeout(std::move(options)));
  }
};

}  // namespace syncguard::testing
