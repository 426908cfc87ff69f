#include "command/commands.hpp"

#include "command/waiting_display.hpp"

#include <syncguard/registry.hpp>

#include <csignal>
#include <utility>

namespace syncguard::command {
namespace {

using nlohmann::ordered_json;

std::int64_t millis(Timestamp time) { return time.time_since_epoch().count(); }

}  // namespace

std::optional<Lease> wait_for_lock(Locks& locks, const Key& key, AcquireOptions options, std::chrono::milliseconds wait,
                                   const Output& output, const std::stop_token& stop) {
  if (auto lease = locks.try_acquire(key, {.ttl = options.ttl, .auto_extend = options.auto_extend}, stop)) return lease;
  if (wait == std::chrono::milliseconds(0)) {
    output.remark("locked by somebody else");
    return std::nullopt;
  }
  output.detail("locked by somebody else: waiting");
  std::optional<WaitingDisplay> display;
  if (output.is_for_people()) display.emplace(locks, key.str());
  options.wait = {.timeout = wait, .max_retries = WaitOptions::unlimited_retries};
  try {
    return locks.acquire(key, options, stop);
  } catch (const LockError& error) {
    if (error.code() != ErrorCode::acquisition_timeout) throw;
    display.reset();
    // The cause is a backend that failed meanwhile, which is worth knowing.
    output.remark(error.context().cause ? error.what() : "locked by somebody else");
    return std::nullopt;
  }
}

ExitCode acquire(Locks& locks, const AcquireArguments& arguments, const Output& output, const std::stop_token& stop) {
  auto lease = wait_for_lock(locks, arguments.key, {.ttl = arguments.ttl}, arguments.wait, output, stop);
  if (!lease) {
    output.result({{"ok", false}, {"reason", "locked"}}, "");
    return exit_locked;
  }
  // Whoever reads may be gone. Then nobody has the id, and the lock is given back.
  std::signal(SIGPIPE, SIG_IGN);
  output.result({{"ok", true},
                 {"lockId", lease->id().str()},
                 {"fence", lease->fence().str()},
                 {"expiresAtMs", millis(lease->expires_at())}},
                lease->id().str());
  // The lock outlives this process: whoever has its id goes on with it.
  lease->detach();
  output.remark("acquired with fence " + lease->fence().str() + " until " + local_time(lease->expires_at()));
  return exit_yes;
}

ExitCode release(Locks& locks, const std::string& lock_id, const Output& output, std::stop_token stop) {
  const bool released = locks.release(LockId(lock_id), std::move(stop));
  output.result({{"ok", released}}, "");
  output.remark(released ? "released" : "there is no such lock any more");
  return released ? exit_yes : exit_no;
}

ExitCode extend(Locks& locks, const std::string& lock_id, std::chrono::milliseconds ttl, const Output& output,
                std::stop_token stop) {
  const auto expires_at = locks.extend(LockId(lock_id), ttl, std::move(stop));
  if (!expires_at) {
    output.result({{"ok", false}}, "");
    output.remark("there is no such lock any more");
    return exit_no;
  }
  output.result({{"ok", true}, {"expiresAtMs", millis(*expires_at)}}, "");
  output.remark("extended until " + local_time(*expires_at));
  return exit_yes;
}

ExitCode status(Locks& locks, const StatusArguments& arguments, const Output& output, std::stop_token stop) {
  const auto record = arguments.lock_id ? locks.get_by_id_raw(LockId(*arguments.lock_id), std::move(stop))
                                        : locks.get_by_key_raw(arguments.key.value(), std::move(stop));
  if (!record) {
    output.result({{"locked", false}}, "not locked");
    return exit_no;
  }
  const LockInfo info = sanitise(*record);
  ordered_json object = {{"locked", true},
                         {"keyHash", info.key_hash},
                         {"lockIdHash", info.lock_id_hash},
                         {"fence", info.fence.str()},
                         {"expiresAtMs", millis(info.expires_at)},
                         {"acquiredAtMs", millis(info.acquired_at)}};
  std::string text = "locked since " + local_time(info.acquired_at) + ", until " + local_time(info.expires_at) +
                     " unless it is extended\nfence " + info.fence.str() + "\nkey " + info.key_hash + " (hashed), id " +
                     info.lock_id_hash + " (hashed)";
  if (arguments.raw) {
    object["key"] = record->key.str();
    object["lockId"] = record->lock_id.str();
    text += "\nkey " + record->key.str() + "\nid " + record->lock_id.str();
  }
  output.result(object, text);
  return exit_yes;
}

ExitCode is_locked(Locks& locks, const std::string& key, const Output& output, std::stop_token stop) {
  const bool locked = locks.is_locked(key, std::move(stop));
  output.result({{"locked", locked}}, "");
  output.remark(locked ? "locked" : "not locked");
  return locked ? exit_yes : exit_no;
}

ExitCode setup(Locks& locks, const Output& output, std::stop_token stop) {
  const auto made = locks.setup(std::move(stop));
  output.result({{"ok", true}, {"message", made}}, made);
  return exit_yes;
}

namespace {

struct Shown {
  const char* name;
  const char* colour;
};

Shown shown(Finding::Verdict verdict) {
  switch (verdict) {
    case Finding::Verdict::fine:
      return {"fine", "\033[32m"};
    case Finding::Verdict::warning:
      return {"warning", "\033[33m"};
    case Finding::Verdict::failure:
      break;
  }
  return {"failure", "\033[31m"};
}

}  // namespace

ExitCode doctor(Locks& locks, const Output& output, std::stop_token stop) {
  const auto findings = locks.diagnose(std::move(stop));
  ordered_json checks = ordered_json::array();
  std::string text;
  bool fit = true;
  for (const auto& finding : findings) {
    const auto [verdict, colour] = shown(finding.verdict);
    fit = fit && finding.verdict != Finding::Verdict::failure;
    checks.push_back(
        {{"check", finding.check}, {"verdict", verdict}, {"found", finding.found}, {"advice", finding.advice}});
    const std::string padding(sizeof "warning" - 1 - std::string_view(verdict).size(), ' ');
    text += output.coloured(colour, verdict) + padding + "  " + finding.check + ": " + finding.found;
    if (!finding.advice.empty()) text += "; " + finding.advice;
    text += '\n';
  }
  if (!text.empty()) text.pop_back();
  output.result({{"ok", fit}, {"checks", checks}}, text);
  return fit ? exit_yes : exit_no;
}

ExitCode backends(const Output& output) {
  ordered_json schemes = ordered_json::array();
  std::string text;
  for (const auto& scheme : registered_schemes()) {
    schemes.push_back(scheme);
    text += (text.empty() ? "" : "\n") + scheme + ":";
  }
  output.result({{"version", SYNCGUARD_VERSION}, {"backends", schemes}}, text);
  return exit_yes;
}

}  // namespace syncguard::command
