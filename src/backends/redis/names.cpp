#include "backends/redis/names.hpp"

#include "backends/redis/scripts.hpp"
#include "core/validation.hpp"

#include <syncguard/error.hpp>
#include <syncguard/storage_key.hpp>

namespace syncguard::redis {
namespace {

std::string_view without_colons(std::string_view prefix) {
  while (prefix.ends_with(':')) prefix.remove_suffix(1);
  return prefix;
}

// For a pattern of SCAN.
std::string escaped(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (std::string_view("*?[]^-\\").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

// Whether the longest key fits behind this without being hashed.
bool fits(const std::string& root) {
  return root.size() + Key::max_bytes + redis_storage_limit.reserve <= redis_storage_limit.limit;
}

using core::refuse;

}  // namespace

Names::Names(std::string_view prefix)
    : prefix_(without_colons(prefix)),
      root_(prefix_.empty() ? "" : prefix_ + ":"),
      queue_root_(prefix_ + "-queue:"),
      turn_root_(prefix_ + "-turn:"),
      wake_root_(prefix_ + "-wake:"),
      have_queues_(fits(queue_root_)) {
  if (prefix_.find('\0') != std::string::npos || !core::to_nfc(prefix_)) refuse("the prefix is not UTF-8 text");
  // Throws if the prefix leaves no room for a key, even hashed.
  (void)index(LockId(std::string(LockId::length, 'A')));
}

std::string Names::lock(const Key& key) const {
  const std::string_view text = key.str();
  constexpr std::string_view id = "id:";
  constexpr std::string_view fence = "fence:";
  if (text.starts_with(id) && LockId::is_valid(text.substr(id.size()))) {
    refuse("this key collides with the index of a lock: choose a key other than id: followed by a lock id");
  }
  if (text.starts_with(fence) && text.substr(fence.size()).starts_with(root_)) {
    refuse("this key collides with a fence counter: choose a key that does not begin with fence: and the prefix");
  }
  // Without a prefix, the name of a lock could be the name of a queue or a turn.
  if (prefix_.empty() && (text.starts_with(queue_root_) || text.starts_with(turn_root_))) {
    refuse("this key collides with a queue: use a prefix, or a key that does not begin with -queue: or -turn:");
  }
  return lock_storage_key(prefix_, key, redis_storage_limit);
}

std::string Names::fence(std::string_view lock) const { return fence_storage_key(prefix_, lock, redis_storage_limit); }

std::string Names::fence_pattern() const { return escaped(root_) + "fence:*"; }

std::string Names::lock_pattern(std::string_view key_prefix) const {
  // A hashed name does not begin with the key.
  return escaped(root_) + (fits(root_) ? escaped(key_prefix) : "") + "*";
}

std::string Names::index(const LockId& id) const {
  return make_storage_key(prefix_, "id:" + id.str(), redis_storage_limit);
}

std::string Names::wake_channel(const LockId& waiter) const { return wake_root_ + sha1(waiter.view()); }

std::string Names::index_root() const { return root_ + "id:"; }

}  // namespace syncguard::redis
