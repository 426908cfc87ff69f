// Entries of lists, and holders of keys.
#pragma once

#include <syncguard/admin_types.hpp>

#include <cstddef>
#include <optional>
#include <utility>

namespace syncguard::core {

// The entry of a list for this lock. waiters: nullopt if the store keeps no queue.
inline ListedLock listed(const LockRecord& record, std::optional<std::size_t> waiters) {
  return {.key = record.key,
          .expires_at = record.expires_at,
          .acquired_at = record.acquired_at,
          .fence = record.fence,
          .holder = record.holder,
          .waiters = waiters};
}

// The key is held, and this is its lock.
inline void set_holder(KeyState& state, ListedLock lock) {
  state.holders = {{.fence = lock.fence,
                    .acquired_at = lock.acquired_at,
                    .expires_at = lock.expires_at,
                    .label = std::move(lock.holder)}};
  state.waiters = lock.waiters;
}

}  // namespace syncguard::core
