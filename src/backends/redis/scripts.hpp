// The scripts in lua/, and their replies.
#pragma once

#include "backends/redis/protocol.hpp"
#include "core/key_rules.hpp"

#include <syncguard/backend.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace syncguard::redis {

// In hexadecimal, as redis.sha1hex gives it.
std::string sha1(std::string_view text);

struct Script {
  // The source may contain lines such as `-- include now`, which stand for other files in lua/.
  explicit Script(std::string_view source);

  std::string text;
  // The SHA-1 of the text, by which a server identifies a script that it has loaded.
  std::string hash;
};

// One script for each operation.
struct Scripts {
  const Script acquire;
  const Script release;
  const Script extend;
  const Script is_locked;
  const Script lookup_key;
  const Script lookup_id;
  const Script remove_dead;
  const Script join;
  const Script look;
  const Script leave;
  const Script list;
  const Script inspect;
  const Script break_lock;
  const Script raise_fence;
  const Script probe;
  const Script highest_counter;
};
const Scripts& scripts();

// Each reads the reply of one script. Throws LockError(internal) if the reply is invalid, or if the value that is
// stored for the key is not a lock.
AcquireReply acquire_reply(const Reply& reply);
ReleaseReply release_reply(const Reply& reply);
ExtendReply extend_reply(const Reply& reply);
bool is_locked_reply(const Reply& reply);
std::optional<LockRecord> lookup_reply(const Reply& reply);

// What a waiter found, and how many times as long the pause between its looks is in a very long queue.
struct Standing {
  core::WaiterReply reply;
  int crowd = 1;
};
// nullopt if the value that is stored for the queue is not a queue.
std::optional<Standing> join_reply(const Reply& reply);
// Of so many waiters. The places are not set.
std::vector<Standing> look_reply(const Reply& reply, std::size_t count);

// One step of a list.
struct ListStep {
  struct Entry {
    ListedLock lock;
    // The name in Redis; empty if it is the one that the key leads to.
    std::string name;
  };

  std::string cursor;
  Timestamp now;
  std::vector<Entry> locks;
};
ListStep list_reply(const Reply& reply);
KeyState inspect_reply(const Reply& reply);
bool break_lock_reply(const Reply& reply);
Fence raise_fence_reply(const Reply& reply);

}  // namespace syncguard::redis
