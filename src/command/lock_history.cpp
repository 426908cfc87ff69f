#include "command/lock_history.hpp"

#include <utility>

namespace syncguard::command {

LockHistory::Update LockHistory::apply(Scan scan) {
  Update update;
  update.total_changed = scan.total != latest_.total || !has_scanned_;
  const auto note = [&](LockChange change) {
    // A key that one of the scans left out may have been locked all the time.
    if (has_scanned_ && latest_.covers(change.key) && scan.covers(change.key))
      update.changes.push_back(std::move(change));
  };

  auto before = latest_.locks.cbegin();
  auto after = scan.locks.cbegin();
  while (before != latest_.locks.cend() || after != scan.locks.cend()) {
    const bool is_removed =
        after == scan.locks.cend() || (before != latest_.locks.cend() && before->first < after->first);
    const bool is_new = !is_removed && (before == latest_.locks.cend() || after->first < before->first);
    if (is_removed) {
      update.removed.push_back(before->first);
      note({.at = scan.now,
            .key = before->first,
            .previous_holder = before->second.holder,
            .previous_fence = before->second.fence});
      ++before;
    } else if (is_new) {
      update.set.push_back(after->second);
      note({.at = scan.now, .key = after->first, .holder = after->second.holder, .fence = after->second.fence});
      ++after;
    } else {
      if (before->second != after->second) update.set.push_back(after->second);
      if (before->second.fence != after->second.fence) {
        note({.at = scan.now,
              .key = after->first,
              .holder = after->second.holder,
              .fence = after->second.fence,
              .previous_holder = before->second.holder,
              .previous_fence = before->second.fence});
      }
      ++before;
      ++after;
    }
  }

  for (const auto& change : update.changes) changes_.push_back(change);
  while (changes_.size() > max_changes) changes_.pop_front();
  latest_ = std::move(scan);
  has_scanned_ = true;
  return update;
}

}  // namespace syncguard::command
