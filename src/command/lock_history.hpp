// The state that the page of `serve` shows: the locks of the latest scan, and the recent changes. Pure: no I/O, no
// clock.
#pragma once

#include "command/scan.hpp"

#include <syncguard/admin_types.hpp>

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

namespace syncguard::command {

// The holder of a key changed. An extension is not a change.
struct LockChange {
  // When it was noticed, on the store's clock. The change itself happened since the scan before.
  Timestamp at;
  std::string key;
  // The lock that is there now; its fence is zero if the key became free.
  std::string holder{};
  Fence fence{};
  // The lock that was there before; its fence is zero if the key was free.
  std::string previous_holder{};
  Fence previous_fence{};

  friend bool operator==(const LockChange&, const LockChange&) = default;
};

class LockHistory {
 public:
  static constexpr std::size_t max_changes = 1000;

  // The difference between two scans.
  struct Update {
    // Locks that are new, or of which anything changed.
    std::vector<ListedLock> set{};
    std::vector<std::string> removed{};
    std::vector<LockChange> changes{};
    bool total_changed = false;

    [[nodiscard]] bool is_empty() const { return set.empty() && removed.empty() && !total_changed; }
  };

  // Replaces the locks. The first scan sets locks but changes none: it is not known when they were acquired.
  Update apply(Scan scan);

  [[nodiscard]] const Scan& latest() const { return latest_; }
  // Oldest first.
  [[nodiscard]] const std::deque<LockChange>& changes() const { return changes_; }

 private:
  Scan latest_;
  bool has_scanned_ = false;
  std::deque<LockChange> changes_;
};

}  // namespace syncguard::command
