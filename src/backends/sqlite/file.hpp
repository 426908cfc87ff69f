// The file of the embedded backend, before SQLite sees it.
#pragma once

#include <filesystem>

namespace syncguard::sqlite {

// Makes sure that there is a file at path that only its owner can read, in a folder that exists, on a file system where
// locks hold. Never touches a file that is there already. Throws LockError.
void create_private_file(const std::filesystem::path& path);

}  // namespace syncguard::sqlite
