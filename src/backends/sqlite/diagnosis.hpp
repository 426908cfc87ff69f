// Whether a place and the database there are fit for locks.
#pragma once

#include "backends/sqlite/store.hpp"

#include <syncguard/diagnosis.hpp>

#include <filesystem>
#include <vector>

namespace syncguard::sqlite {

// What can be said without opening the database: about its file system and who may use it. Changes nothing.
std::vector<Finding> examine_place(const std::filesystem::path& path);
// What can be said once it is open.
std::vector<Finding> examine(const Store::Health& health);

}  // namespace syncguard::sqlite
