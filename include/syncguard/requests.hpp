/// \file
/// The requests to a backend, and its replies. Without Asio.
#pragma once

#include <syncguard/fence.hpp>
#include <syncguard/key.hpp>
#include <syncguard/lock_id.hpp>
#include <syncguard/lock_info.hpp>

#include <chrono>
#include <cstddef>
#include <string>
#include <variant>

namespace syncguard {
inline namespace v0_1 {

/// What a backend may use to save work. Ignoring all of it is correct.
struct AcquireHints {
  /// Whether the caller waits if the key is contended. A waiting caller may be refused briefly in favor of other
  /// clients.
  bool can_wait = false;
  /// No earlier request has used the lock id, and it is in no queue.
  bool id_is_new = false;
};

struct AcquireRequest {
  Key key;
  LockId lock_id;
  std::chrono::milliseconds ttl;
  /// The label to store with the lock, see ClientOptions::holder; empty: none.
  std::string holder{};
  AcquireHints hints{};
};

struct Granted {
  Fence fence;
  Timestamp expires_at;
  /// The remaining time, computed in the atomic step. Zero or negative if a repeated acquire finds its lock in the
  /// tolerance after its expiry. Never more than the ttl, even if the clock was set back before a repeated acquire.
  std::chrono::milliseconds remaining;
};

struct Contended {
  /// The key becomes free after this time unless its holder renews the lock. If it is reserved for a waiter, the end of
  /// the reservation.
  std::chrono::milliseconds free_in;
};

struct Released {};

struct Extended {
  Timestamp expires_at;
  std::chrono::milliseconds remaining;
};

/// Why a lock id could not be released or extended. A lock with a different id is not_found.
enum class Missing { expired, not_found };

/// Which live locks to list, as in ListOptions.
struct ListRequest {
  /// In normalization form C.
  std::string prefix{};
  std::size_t limit = 100;
  /// From a page of this backend; empty: at the beginning.
  std::string cursor{};
};

using AcquireReply = std::variant<Granted, Contended>;
using ReleaseReply = std::variant<Released, Missing>;
using ExtendReply = std::variant<Extended, Missing>;

}  // namespace v0_1
}  // namespace syncguard
