// Test vectors that the TypeScript library produced.
#pragma once

#include <nlohmann/json.hpp>

#include <fstream>
#include <string>

namespace syncguard::testing {

inline nlohmann::json load_vectors(const std::string& name) {
  std::ifstream file(std::string(SYNCGUARD_VECTORS) + "/" + name + ".json");
  return nlohmann::json::parse(file);
}

}  // namespace syncguard::testing
