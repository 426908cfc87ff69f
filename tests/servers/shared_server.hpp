// A server that several test programs share, because starting one takes long: the file that describes it.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

namespace syncguard::testing {

// Written by shared_server.cpp. Its name contains the id of the ctest process, so that two runs of ctest at the same
// time do not share a server.
inline std::filesystem::path shared_server_file(const std::filesystem::path& folder, const std::string& name) {
  return folder / (name + "-" + std::to_string(getppid()));
}

struct SharedServer {
  std::filesystem::path file;
  std::map<std::string, std::string> properties{};
};

inline SharedServer read_shared_server(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("the ctest fixture has started no server: cannot read " + path.string());
  SharedServer server{.file = path};
  for (std::string key, value; file >> key >> value;) server.properties[key] = value;
  return server;
}

// The server of the ctest fixture; nullopt if ctest has not started this program with the fixture. Call it in the
// process that ctest has started, not in a child. Throws if the fixture has no server.
inline std::optional<SharedServer> find_shared_server(const std::string& name) {
  const char* const folder = std::getenv("SYNCGUARD_SHARED_SERVERS");
  if (folder == nullptr) return std::nullopt;
  return read_shared_server(shared_server_file(folder, name));
}

}  // namespace syncguard::testing
