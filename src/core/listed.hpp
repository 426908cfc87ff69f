// Entries of lists.
#pragma once

#include <syncguard/administration.hpp>

#include <cstddef>
#include <optional>

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

}  // namespace syncguard::core
