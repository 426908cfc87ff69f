// Documents as the TypeScript library stores them.
#pragma once

#include "os/clocks.hpp"
#include "servers/firestore_emulator.hpp"

#include <syncguard/backend.hpp>

#include <string>

namespace syncguard::testing {

using nlohmann::json;

inline json text_value(const std::string& text) { return {{"stringValue", text}}; }
inline json time_value(Timestamp time) { return {{"integerValue", std::to_string(time.time_since_epoch().count())}}; }

// A lock as the TypeScript library stores it.
inline json fields_of_lock(const LockRecord& record) {
  return {{"lockId", text_value(record.lock_id.str())},
          {"expiresAtMs", time_value(record.expires_at)},
          {"acquiredAtMs", time_value(record.acquired_at)},
          {"key", text_value(record.key.str())},
          {"fence", text_value(record.fence.str())}};
}

using os::system_now;

}  // namespace syncguard::testing
