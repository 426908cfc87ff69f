// What tests of the embedded backend share.
#pragma once

#include "patience.hpp"
#include "sqlite_outsider.hpp"
#include "temporary_folder.hpp"

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
    return Locks(make_sqlite_backend({.path = path}), patient_options(std::move(options)));
  }
};

}  // namespace syncguard::testing
