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
  Holder holder;
  KeyState state;
};

// The lock with its id, and its holder and waiters, from two requests.
std::optional<Found> find(const Admin& admin, const StatusArguments& arguments, const std::stop_token& stop) {
  constexpr int max_attempts = 100;
  for (int attempt = 0; attempt < max_attempts; ++attempt) {
    const auto record = arguments.lock_id ? admin.get_by_id_raw(LockId(*arguments.lock_id), stop)
                                          : admin.get_by_key_raw(arguments.key.value(), stop);
    if (!record) return std::nullopt;
    auto state = admin.inspect(record->key, stop);
    const auto found = std::ranges::find(state.holders, record->fence, &Holder::fence);
    if (found != state.holders.end()) return Found{*record, *found, std::move(state)};
    // Another holder got the lock in between.
  }
  throw LockError(ErrorCode::internal,
                  "the key of the lock is not where the lock is stored, or its holder changes all the time");
}

}  // namespace

ExitCode status(const Admin& admin, const StatusArguments& arguments, const Output& output,
                const std::stop_token& stop) {
  const auto found = find(admin, arguments, stop);
  if (!found) {
    output.result({{"locked", false}}, "not locked");
    return exit_no;
  }
  const auto& [record, holder, state] = *found;
  const LockInfo info = sanitize(record);
  const auto held = state.now - holder.acquired_at;
  const auto left = holder.expires_at - state.now;
  ordered_json object = {{"locked", true},
                         {"keyHash", info.key_hash},
                         {"lockIdHash", info.lock_id_hash},
                         {"fence", holder.fence.str()},
                         {"expiresAtMs", millis(holder.expires_at)},
                         {"acquiredAtMs", millis(holder.acquired_at)},
                         {"holder", holder.label},
                         {"waiters", waiters_json(state.waiters)},
                         {"heldMs", held.count()},
                         {"remainingMs", left.count()}};
  std::string text = "locked by " + shown_holder(holder.label) + "\nsince " + local_time(holder.acquired_at) + " (" +
                     short_duration(held) + ")\n";
  text += left > 0ms
              ? "until " + local_time(holder.expires_at) + " (" + short_duration(left) + " left) unless it is extended"
              : "expired at " + local_time(holder.expires_at) + ", being kept for clock tolerance";
  text += "\nfence " + holder.fence.str();
  if (state.waiters) text += "\nwaiters " + std::to_string(*state.waiters);
  text += "\nkey " + printable(record.key.str());
  if (arguments.raw) {
    object["key"] = record.key.str();
    object["lockId"] = record.lock_id.str();
    text += "\nid " + printable(record.lock_id.str());
  }
  output.result(object, text);
  return exit_yes;
}

ExitCode watch(const Admin& admin, const Key& key, const Output& output, const std::stop_token& stop) {
  bool reader_has_ended = false;
  std::stop_source enough;
  const std::stop_callback forward(stop, [&] { enough.request_stop(); });
  const auto show = [&](const KeyState& state) {
    ordered_json object = {{"locked", !state.holders.empty()}, {"atMs", millis(state.now)}};
    std::string text = local_time(state.now) + " ";
    if (state.holders.empty()) text += "free";
    for (const auto& holder : state.holders) {
      object.update(holder_json(key, holder, state.waiters));
      text += "locked by " + shown_holder(holder.label) + ", fence " + holder.fence.str();
    }
    if (output.result(object, text)) return;
    reader_has_ended = true;
    enough.request_stop();
  };
  admin.watch(key, {}, show, enough.get_token());
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

ExitCode keep_listing(const Admin& admin, const ListArguments& arguments, const Output& output,
                      const std::stop_token& stop) {
  const bool in_place = isatty(STDOUT_FILENO) != 0;
  while (!stop.stop_requested()) {
    const auto start = std::chrono::steady_clock::now();
    try {
      const auto table = table_of(scan_locks(admin, arguments.prefix, Scan::no_limit, stop));
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

ExitCode list(const Admin& admin, const ListArguments& arguments, const Output& output, const std::stop_token& stop) {
  if (arguments.watch) return keep_listing(admin, arguments, output, stop);
  const auto scan = scan_locks(admin, arguments.prefix, Scan::no_limit, stop);
  ordered_json objects = ordered_json::array();
  for (const auto& [key, lock] : scan.locks) objects.push_back(lock_json(lock));
  output.result({{"nowMs", millis(scan.now)}, {"locks", objects}}, scan.locks.empty() ? "" : table_of(scan));
  if (scan.locks.empty()) output.note("no locks");
  return exit_yes;
}

// ---------------------------------------------------------------------------------------------------------------------
// Changes

namespace {

bool is_confirmed(const BreakArguments& arguments, const Holder& holder, Timestamp now, const Output& output) {
  if (arguments.yes) return true;
  if (!output.is_interactive() || isatty(STDIN_FILENO) == 0 || isatty(STDERR_FILENO) == 0) {
    throw LockError(ErrorCode::invalid_argument,
                    "breaking a lock must be confirmed, and this is not a terminal: add --yes if you are sure that its "
                    "holder no longer works");
  }
  std::fprintf(stderr,
               "locked by %s for %s, fence %s\nIf the holder still works, two will work at the same time. Break the "
               "lock? [y/N] ",
               shown_holder(holder.label).c_str(), short_duration(now - holder.acquired_at).c_str(),
               holder.fence.str().c_str());
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

ExitCode break_lock(const Admin& admin, const BreakArguments& arguments, const Output& output,
                    const std::stop_token& stop) {
  const auto state = admin.inspect(arguments.key, stop);
  const auto refused = [&](const char* reason, const std::string& message) {
    output.result({{"ok", false}, {"reason", reason}}, "");
    output.note(message);
    return exit_no;
  };
  if (state.holders.empty()) return refused("not-locked", "not locked");
  const auto fence = arguments.fence.value_or(state.holders.front().fence);
  const auto found = std::ranges::find(state.holders, fence, &Holder::fence);
  if (found == state.holders.end()) {
    return refused("other-fence",
                   "the lock has the fence " + state.holders.front().fence.str() + " and was not broken");
  }
  const Holder& holder = *found;
  if (!is_confirmed(arguments, holder, state.now, output)) return refused("not-confirmed", "not broken");
  if (!admin.break_lock(arguments.key, fence, stop)) {
    return refused("other-fence", "the lock was released in the meantime and was not broken");
  }
  output.result({{"ok", true}, {"fence", fence.str()}, {"holder", holder.label}}, "");
  output.note("broken: it was held by " + holder.label + " with the fence " + fence.str());
  return exit_yes;
}

ExitCode fence(const Admin& admin, const FenceArguments& arguments, const Output& output, const std::stop_token& stop) {
  const auto value = arguments.raise_to ? admin.raise_fence(arguments.key, *arguments.raise_to, stop)
                                        : admin.inspect(arguments.key, stop).fence;
  output.result({{"fence", value.str()}}, value.str());
  return exit_yes;
}

}  // namespace syncguard::command
