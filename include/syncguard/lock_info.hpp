// What can be said about a lock that is held.
#pragma once

#include <syncguard/export.hpp>
#include <syncguard/fence.hpp>
#include <syncguard/key.hpp>
#include <syncguard/lock_id.hpp>

#include <chrono>
#include <string>
#include <string_view>

namespace syncguard {

// A moment on the clock of the backend's time authority, in Unix milliseconds.
using Timestamp = std::chrono::sys_time<std::chrono::milliseconds>;

// The first 24 hexadecimal digits of the SHA-256 of value in normalisation form C: tells identifiers apart in logs
// without giving them away.
SYNCGUARD_EXPORT std::string hash_key(std::string_view value);

// What is stored about a lock, raw identifiers included. For debugging: never log it.
struct LockRecord {
  Key key;
  LockId lock_id;
  Timestamp expires_at;
  Timestamp acquired_at;
  Fence fence;

  friend bool operator==(const LockRecord&, const LockRecord&) = default;
};

// The same without raw identifiers: safe to log.
struct LockInfo {
  std::string key_hash;
  std::string lock_id_hash;
  Timestamp expires_at;
  Timestamp acquired_at;
  Fence fence;

  friend bool operator==(const LockInfo&, const LockInfo&) = default;
};

SYNCGUARD_EXPORT LockInfo sanitise(const LockRecord& record);

}  // namespace syncguard
