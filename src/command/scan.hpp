// One pass over all locks of the store, for `list` and `serve`.
#pragma once

#include <syncguard/syncguard.hpp>

#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <stop_token>
#include <string>

namespace syncguard::command {

struct Scan {
  // The limit for a server that keeps its scans.
  static constexpr std::size_t max_locks = 20'000;
  static constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();

  // By key. At most as many as the limit, those with the smallest keys.
  std::map<std::string, ListedLock> locks{};
  std::size_t limit = max_locks;
  // How many locks the store has, including those that are left out of `locks`. Those may be counted twice.
  std::size_t total = 0;
  // On the store's clock.
  Timestamp now{};

  // Whether this scan would contain the lock of a key, if there were one. Not if the key is beyond those that are kept.
  [[nodiscard]] bool covers(const std::string& key) const {
    return locks.size() < limit || key <= locks.rbegin()->first;
  }

  // A list may contain a lock twice; the later one counts.
  void add(LockPage page);
};

// Reads the locks whose keys begin with the prefix. Calls after_page after each request to the store. Throws LockError.
Scan scan_locks(
    const Admin& admin, const std::string& prefix, std::size_t limit, const std::stop_token& stop,
    const std::function<void()>& after_page = [] {});

}  // namespace syncguard::command
