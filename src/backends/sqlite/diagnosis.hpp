// Checks whether a path and its database are fit for locks.
#pragma once

#include "backends/sqlite/store.hpp"

#include <syncguard/diagnosis.hpp>

#include <filesystem>
#include <vector>

namespace syncguard::sqlite {

// Findings about the file system and permissions, without opening the database. Changes nothing.
std::vector<Finding> check_path(const std::filesystem::path& path);
// Findings about the open database.
std::vector<Finding> examine(const Store::Health& health, FenceSource fences);

}  // namespace syncguard::sqlite
