#include "backends/redis/names.hpp"

#include "core/storage_key.hpp"
#include "core/unicode.hpp"

#include <syncguard/error.hpp>

namespace syncguard::redis {
namespace {

// Redis itself would take 512 MB; every SyncGuard keeps to this.
constexpr core::StorageLimit limit{.limit = 1000, .reserve = 26};

std::string_view without_colons(std::string_view prefix) {
  while (prefix.ends_with(':')) prefix.remove_suffix(1);
  return prefix;
}

[[noreturn]] void refuse(const char* message) { throw LockError(ErrorCode::invalid_argument, message); }

}  // namespace

Names::Names(std::string_view prefix)
    : prefix_(without_colons(prefix)),
      root_(prefix_.empty() ? "" : prefix_ + ":"),
      queue_root_(prefix_ + "-queue:"),
      turn_root_(prefix_ + "-turn:"),
      wake_root_(prefix_ + "-wake:"),
      have_queues_(queue_root_.size() + Key::max_bytes + limit.reserve <= limit.limit) {
  if (prefix_.find('\0') != std::string::npos || !core::to_nfc(prefix_)) refuse("the prefix is not UTF-8 text");
  // Finds out whether anything fits, hashed if need be.
  (void)index(LockId(std::string(LockId::length, 'A')));
}

std::string Names::lock(const Key& key) const {
  const std::string_view text = key.str();
  constexpr std::string_view id = "id:";
  constexpr std::string_view fence = "fence:";
  if (text.starts_with(id) && LockId::is_valid(text.substr(id.size()))) {
    refuse("this key would take the place of a lock's index: choose one that is not id: and a lock id");
  }
  if (text.starts_with(fence) && text.substr(fence.size()).starts_with(root_)) {
    refuse(
        "this key would take the place of a fence counter: choose one that does not begin with fence: and the prefix");
  }
  // Only without a prefix can the names for waiting be those of locks.
  if (prefix_.empty() && (text.starts_with(queue_root_) || text.starts_with(turn_root_))) {
    refuse(
        "this key would take the place of a queue: use a prefix, or a key that does not begin with -queue: or -turn:");
  }
  return core::lock_storage_key(prefix_, key, limit);
}

std::string Names::fence(std::string_view lock) const { return core::fence_storage_key(prefix_, lock, limit); }

std::string Names::index(const LockId& id) const { return core::make_storage_key(prefix_, "id:" + id.str(), limit); }

std::string Names::index_root() const { return root_ + "id:"; }

}  // namespace syncguard::redis
