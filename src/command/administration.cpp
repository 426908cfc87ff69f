#include "command/administration.hpp"

#include "command/json.hpp"
#include "command/printable.hpp"
#include "command/scan.hpp"
#include "command/signals.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <utility>
#include <vector>

namespace syncguard::command {
namespace {

using namespace std::chrono_literals;
using nlohmann::ordered_json;

// With the two largest units, such as 2d3h, 1h05m, 3m12s or 7s.
std::string short_duration(std::chrono::milliseconds duration) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(std::max(duration, 0ms)).count();
  const auto with = [](std::int64_t large, const char* unit, std::int64_t small, const char* small_unit) {
    return std::to_string(large) + unit + (small < 10 ? "0" : "") + std::to_string(small) + small_unit;
  };
  constexpr std::int64_t minute = 60;
  constexpr std::int64_t hour = 60 * minute;
  constexpr std::int64_t day = 24 * hour;
  if (seconds >= day) return with(seconds / day, "d", seconds % day / hour, "h");
  if (seconds >= hour) return with(seconds / hour, "h", seconds % hour / minute, "m");
  if (seconds >= minute) return with(seconds / minute, "m", seconds % minute, "s");
  return std::to_string(seconds) + "s";
}

std::string shown_holder(const std::string& holder) { return holder.empty() ? "unknown" : printable(holder); }

}  // namespace

// ---------------------------------------------------------------------------------------------------------------------
// One lock

namespace {

struct Found {
  LockRecord record;
  KeyState state;
};

// The lock with its id, and its holder and waiters, from two requests.
std::optional<Found> find(Locks& locks, const StatusArguments& arguments, const std::stop_token& stop) {
  constexpr int max_attempts = 100;
  for (int attempt = 0; attempt < max_attempts; ++attempt) {
    const auto record = arguments.lock_id ? locks.get_by_id_raw(LockId(*arguments.lock_id), stop)
                                          : locks.get_by_key_raw(arguments.key.value(), stop);
    if (!record) return std::nullopt;
    auto state = locks.inspect(record->key, stop);
    if (state.lock && state.lock->fence == record->fence) return Found{*record, std::move(state)};
    // Another holder got the lock in between.
  }
  throw LockError(ErrorCode::internal,
                  "the key of the lock is not where the lock is stored, or its holder changes all the time");
}

}  // namespace

ExitCode status(Locks& locks, const StatusArguments& arguments, const Output& output, const std::stop_token& stop) {
  const auto found = find(locks, arguments, stop);
  if (!found) {
    output.result({{"locked", false}}, "not locked");
    return exit_no;
  }
  const auto& [record, state] = *found;
  const auto& lock = *state.lock;
  const LockInfo info = sanitize(record);
  const auto held = state.now - lock.acquired_at;
  const auto left = lock.expires_at - state.now;
  ordered_json object = {{"locked", true},
                         {"keyHash", info.key_hash},
                         {"lockIdHash", info.lock_id_hash},
                         {"fence", lock.fence.str()},
                         {"expiresAtMs", millis(lock.expires_at)},
                         {"acquiredAtMs", millis(lock.acquired_at)},
                         {"holder", lock.holder},
                         {"waiters", waiters_json(lock)},
                         {"heldMs", held.count()},
                         {"remainingMs", left.count()}};
  std::string text = "locked by " + shown_holder(lock.holder) + "\nsince " + local_time(lock.acquired_at) + " (" +
                     short_duration(held) + ")\n";
  text += left > 0ms
              ? "until " + local_time(lock.expires_at) + " (" + short_duration(left) + " left) unless it is extended"
              : "expired at " + local_time(lock.expires_at) + ", being kept for clock tolerance";
  text += "\nfence " + lock.fence.str();
  if (lock.waiters) text += "\nwaiters " + std::to_string(*lock.waiters);
  text += "\nkey " + printable(lock.key.str());
  if (arguments.raw) {
    object["key"] = record.key.str();
    object["lockId"] = record.lock_id.str();
    text += "\nid " + printable(record.lock_id.str());
  }
  output.result(object, text);
  return exit_yes;
}

ExitCode watch(Locks& locks, const std::string& key, const Output& output, const std::stop_token& stop) {
  bool reader_has_ended = false;
  std::stop_source enough;
  const std::stop_callback forward(stop, [&] { enough.request_stop(); });
  const auto show = [&](const KeyState& state) {
    ordered_json object = {{"locked", state.lock.has_value()}, {"atMs", millis(state.now)}};
    std::string text = local_time(state.now) + " ";
    if (state.lock) {
      object.update(lock_json(*state.lock));
      text += "locked by " + shown_holder(state.lock->holder) + ", fence " + state.lock->fence.str();
    } else {
      text += "free";
    }
    if (output.result(object, text)) return;
    reader_has_ended = true;
    enough.request_stop();
  };
  locks.watch(key, show, {}, enough.get_token());
  return reader_has_ended ? exit_yes : end_by_received_signal();
}

// ---------------------------------------------------------------------------------------------------------------------
// All locks

namespace {

// The number of characters. Their width at a terminal may differ.
std::size_t length_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

std::string table_of(const Scan& scan) {
  constexpr std::size_t columns = 6;
  using Row = std::array<std::string, columns>;
  std::vector<Row> rows = {{"KEY", "HOLDER", "HELD", "EXPIRES IN", "FENCE", "WAITING"}};
  for (const auto& [key, lock] : scan.locks) {
    rows.push_back({printable(key), lock.holder.empty() ? "-" : printable(lock.holder),
                    short_duration(scan.now - lock.acquired_at), short_duration(lock.expires_at - scan.now),
                    lock.fence.str(), lock.waiters ? std::to_string(*lock.waiters) : "-"});
  }
  std::array<std::size_t, columns> widths{};
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < columns; ++i) widths.at(i) = std::max(widths.at(i), length_of(row.at(i)));
  }
  std::string text;
  for (const auto& row : rows) {
    if (!text.empty()) text += '\n';
    for (std::size_t i = 0; i < columns; ++i) {
      text += row.at(i);
      if (i + 1 < columns) text += std::string(widths.at(i) - length_of(row.at(i)) + 2, ' ');
    }
  }
  return text;
}

ExitCode keep_listing(Locks& locks, const ListArguments& arguments, const Output& output, const std::stop_token& stop) {
  const bool in_place = isatty(STDOUT_FILENO) != 0;
  while (!stop.stop_requested()) {
    const auto start = std::chrono::steady_clock::now();
    try {
      const auto table = table_of(scan_locks(locks, arguments.prefix, Scan::no_limit, stop));
      if (!output.result({}, (in_place ? "\033[H\033[J" : "") + table)) return exit_yes;
    } catch (const LockError& error) {
      if (error.code() == ErrorCode::aborted) break;
      if (!error.retryable()) throw;
      output.error_line("retrying: " + message_with_causes(error));
    }
    // At most half of the time is spent on reading.
    const auto took = std::chrono::steady_clock::now() - start;
    sleep_until_stopped(stop, std::max<std::chrono::steady_clock::duration>(1s, took));
  }
  return end_by_received_signal();
}

}  // namespace

ExitCode list(Locks& locks, const ListArguments& arguments, const Output& output, const std::stop_token& stop) {
  if (arguments.watch) return keep_listing(locks, arguments, output, stop);
  const auto scan = scan_locks(locks, arguments.prefix, Scan::no_limit, stop);
  ordered_json objects = ordered_json::array();
  for (const auto& [key, lock] : scan.locks) objects.push_back(lock_json(lock));
  output.result({{"nowMs", millis(scan.now)}, {"locks", objects}}, scan.locks.empty() ? "" : table_of(scan));
  if (scan.locks.empty()) output.note("no locks");
  return exit_yes;
}

// ---------------------------------------------------------------------------------------------------------------------
// Changes

namespace {

bool is_confirmed(const BreakArguments& arguments, const ListedLock& lock, Timestamp now, const Output& output) {
  if (arguments.yes) return true;
  if (!output.is_interactive() || isatty(STDIN_FILENO) == 0 || isatty(STDERR_FILENO) == 0) {
    throw LockError(ErrorCode::invalid_argument,
                    "breaking a lock must be confirmed, and this is not a terminal: add --yes if you are sure that its "
                    "holder no longer works");
  }
  std::fprintf(stderr,
               "locked by %s for %s, fence %s\nIf the holder still works, two will work at the same time. Break the "
               "lock? [y/N] ",
               shown_holder(lock.holder).c_str(), short_duration(now - lock.acquired_at).c_str(),
               lock.fence.str().c_str());
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

}  // namespace

Fence parse_fence(const std::string& text) {
  constexpr std::size_t digits = 15;
  if (text.empty() || text.size() > digits || !std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; })) {
    throw LockError(ErrorCode::invalid_argument, "a fence is a number of at most 15 digits");
  }
  return Fence::parse(std::string(digits - text.size(), '0') + text);
}

ExitCode break_lock(Locks& locks, const BreakArguments& arguments, const Output& output, const std::stop_token& stop) {
  const auto state = locks.inspect(arguments.key, stop);
  const auto refused = [&](const char* reason, const std::string& message) {
    output.result({{"ok", false}, {"reason", reason}}, "");
    output.note(message);
    return exit_no;
  };
  if (!state.lock) return refused("not-locked", "not locked");
  const auto fence = arguments.fence.value_or(state.lock->fence);
  if (fence != state.lock->fence) {
    return refused("other-fence", "the lock has the fence " + state.lock->fence.str() + " and was not broken");
  }
  if (!is_confirmed(arguments, *state.lock, state.now, output)) return refused("not-confirmed", "not broken");
  if (!locks.break_lock(arguments.key, fence, stop)) {
    return refused("other-fence", "the lock was released in the meantime and was not broken");
  }
  output.result({{"ok", true}, {"fence", fence.str()}, {"holder", state.lock->holder}}, "");
  output.note("broken: it was held by " + state.lock->holder + " with the fence " + fence.str());
  return exit_yes;
}

ExitCode fence(Locks& locks, const FenceArguments& arguments, const Output& output, const std::stop_token& stop) {
  const auto value = arguments.raise_to ? locks.raise_fence(arguments.key, *arguments.raise_to, stop)
                                        : locks.fence(arguments.key, stop);
  output.result({{"fence", value.str()}}, value.str());
  return exit_yes;
}

}  // namespace syncguard::command
