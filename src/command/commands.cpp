#include "command/commands.hpp"

#include "command/json.hpp"
#include "command/printable.hpp"
#include "command/waiting_display.hpp"
#include "core/validation.hpp"

#include <syncguard/registry.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

namespace syncguard::command {
namespace {

using nlohmann::ordered_json;

bool is_key_of_enclosing_run(const Key& key) {
  const char* outer_key = std::getenv("SYNCGUARD_KEY");
  return outer_key != nullptr && key.str() == outer_key;
}

// Whether the `syncguard run` around this process holds the key's lock.
bool is_held_by_enclosing_run(Locks& locks, const Key& key, const std::stop_token& stop) {
  const char* outer_id = std::getenv("SYNCGUARD_LOCK_ID");
  if (outer_id == nullptr || !is_key_of_enclosing_run(key)) return false;
  const auto record = locks.admin().get_by_key_raw(key, stop);
  return record && record->lock_id.str() == outer_id;
}

}  // namespace

std::optional<Lease> wait_for_lock(Locks& locks, const Key& key, AcquireOptions options, std::chrono::milliseconds wait,
                                   const Output& output, const std::stop_token& stop) {
  using std::chrono::steady_clock;
  constexpr const char* locked = "locked by another holder";
  // Without --wait, a first attempt that cannot reach the server is an error, so that cron reports it. A local store
  // has no server: a timeout there means that other processes keep the store busy.
  const bool has_limit = wait != WaitOptions::no_timeout;
  const auto is_worth_a_retry = [&](const LockError& error) {
    if (wait == std::chrono::milliseconds(0) || !error.retryable()) return false;
    return has_limit || (error.code() == ErrorCode::network_timeout && locks.capabilities().local);
  };
  const auto start = steady_clock::now();
  try {
    if (auto lease = locks.try_acquire(key, {.ttl = options.ttl, .auto_extend = options.auto_extend}, stop)) {
      return std::move(lease).value();
    }
    if (wait == std::chrono::milliseconds(0)) {
      output.note(locked);
      return std::nullopt;
    }
    if (is_held_by_enclosing_run(locks, key, stop)) {
      throw LockError(
          ErrorCode::invalid_argument,
          "this command runs inside 'syncguard run' with the same key (SYNCGUARD_KEY) and would wait for itself: use "
          "another key, or do not lock again");
    }
    output.detail(std::string(locked) + "; waiting");
  } catch (const LockError& error) {
    // Inside a `syncguard run` with this key, waiting without having read the lock could mean waiting for ourselves.
    if (!is_worth_a_retry(error) || is_key_of_enclosing_run(key)) throw;
    output.detail((has_limit ? "retrying until --wait ends: " : "retrying: ") + message_with_causes(error));
  }
  std::optional<WaitingDisplay> display;
  if (output.is_interactive()) display.emplace(locks, key.str());
  if (has_limit) {
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - start);
    wait = std::max(wait - waited, std::chrono::milliseconds(1));
  }
  options.wait = {.timeout = wait, .max_retries = WaitOptions::unlimited_retries};
  try {
    return locks.acquire(key, options, stop);
  } catch (const LockError& error) {
    if (error.code() != ErrorCode::acquisition_timeout) throw;
    display.reset();
    // A request failed while we waited. If the store still fails, this throws its error, which says more than "locked".
    if (error.context().cause) (void)locks.is_locked(key, stop);
    output.note(locked);
    return std::nullopt;
  }
}

ExitCode acquire(Locks& locks, const AcquireArguments& arguments, const Output& output, const std::stop_token& stop) {
  auto lease = wait_for_lock(locks, arguments.key, {.ttl = arguments.ttl}, arguments.wait, output, stop);
  if (!lease) {
    output.result({{"ok", false}, {"reason", "locked"}}, "");
    return exit_locked;
  }
  const bool written = output.result({{"ok", true},
                                      {"lockId", lease->id().str()},
                                      {"fence", lease->fence().str()},
                                      {"expiresAtMs", millis(lease->expires_at())}},
                                     lease->id().str());
  // As after any other failed write, no process has received the id. The destructor of the lease releases the lock.
  if (!written) throw LockError(ErrorCode::internal, "cannot write the lock id: the reader of the pipe has ended");
  // The lock outlives this process. The caller releases it by its id.
  lease->detach();
  output.note("acquired with fence " + lease->fence().str() + " until " + local_time(lease->expires_at()));
  return exit_yes;
}

std::string read_lock_id(const std::string& argument) {
  if (argument != "-") return argument;
  // An id has 22 characters. Longer input is not an id, so do not store it.
  constexpr std::size_t longest = 64;
  std::string text;
  while (text.size() < longest && text.find('\n') == std::string::npos) {
    char buffer[longest];
    const ssize_t length = read(STDIN_FILENO, buffer, sizeof buffer);
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) throw LockError(ErrorCode::invalid_argument, "cannot read the lock id from standard input");
    if (length == 0) break;
    text.append(buffer, static_cast<std::size_t>(length));
  }
  text.erase(std::min(text.find_first_of("\r\n"), text.size()));
  if (text.empty()) throw LockError(ErrorCode::invalid_argument, "standard input contains no lock id");
  return text;
}

std::string default_holder(const std::string& program) {
  // Not from the user database, which may be on a server that does not respond.
  std::string user = std::to_string(geteuid());
  for (const char* variable : {"USER", "LOGNAME"}) {
    const char* name = std::getenv(variable);
    if (name != nullptr && *name != '\0') user = name;
  }
  std::string process = "/";
  process += std::to_string(getpid());
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const auto label = user + "@" + host + process;
  for (const auto& candidate : {label + (program.empty() ? "" : " ") + program, label}) {
    if (core::is_holder(candidate)) return candidate;
  }
  return process;
}

void quiet_grpc(const Output& output) {
  if (!output.log().debugging()) setenv("GRPC_VERBOSITY", "NONE", 0);
}

ExitCode release(Locks& locks, const std::string& lock_id, const Output& output, std::stop_token stop) {
  const bool released = locks.release(LockId(lock_id), std::move(stop));
  output.result({{"ok", released}}, "");
  output.note(released ? "released" : "the lock has expired or was already released");
  return released ? exit_yes : exit_no;
}

ExitCode extend(Locks& locks, const std::string& lock_id, std::chrono::milliseconds ttl, const Output& output,
                std::stop_token stop) {
  const auto expires_at = locks.extend(LockId(lock_id), ttl, std::move(stop));
  if (!expires_at) {
    output.result({{"ok", false}}, "");
    output.note("the lock has expired or was already released");
    return exit_no;
  }
  output.result({{"ok", true}, {"expiresAtMs", millis(*expires_at)}}, "");
  output.note("extended until " + local_time(*expires_at));
  return exit_yes;
}

ExitCode is_locked(Locks& locks, const std::string& key, const Output& output, std::stop_token stop) {
  const bool locked = locks.is_locked(key, std::move(stop));
  output.result({{"locked", locked}}, "");
  output.note(locked ? "locked" : "not locked");
  return locked ? exit_yes : exit_no;
}

ExitCode setup(Locks& locks, const Output& output, std::stop_token stop) {
  const auto message = locks.admin().setup(std::move(stop));
  output.result({{"ok", true}, {"message", message}}, printable_lines(message));
  return exit_yes;
}

ExitCode print_setup(const Locks& locks, const Output& output) {
  const auto script = locks.admin().setup_script();
  output.result({{"ok", true}, {"sql", script}}, script.substr(0, script.find_last_not_of('\n') + 1));
  if (script.empty()) output.note(locks.capabilities().name + " needs no setup");
  return exit_yes;
}

ExitCode cleanup(Locks& locks, const CleanupArguments& arguments, const Output& output, const std::stop_token& stop) {
  CleanupRequest request;
  request.older_than = arguments.older_than;
  request.mode = arguments.dry_run ? CleanupRequest::Mode::count : CleanupRequest::Mode::remove;
  std::size_t count = 0;
  CleanupReply reply;
  do {
    reply = locks.admin().clean_up(request, stop);
    count += reply.count;
  } while (reply.more && !arguments.dry_run);
  ordered_json object = {{"ok", true}, {arguments.dry_run ? "found" : "removed", count}};
  std::string text = std::string(arguments.dry_run ? "would remove " : "removed ") + std::to_string(count) +
                     (count == 1 ? " expired lock" : " expired locks");
  if (!reply.nothing_to_do.empty()) {
    object["message"] = reply.nothing_to_do;
    text = "nothing to do: " + reply.nothing_to_do;
  }
  output.result(object, text);
  return exit_yes;
}

namespace {

const char* color_of(Finding::Verdict verdict) {
  switch (verdict) {
    case Finding::Verdict::fine:
      return "\033[32m";
    case Finding::Verdict::warning:
      return "\033[33m";
    case Finding::Verdict::failure:
      break;
  }
  return "\033[31m";
}

}  // namespace

ExitCode doctor(Locks& locks, const Output& output, std::stop_token stop) {
  const auto findings = locks.admin().diagnose(std::move(stop));
  ordered_json checks = ordered_json::array();
  std::string text;
  bool ok = true;
  for (const auto& finding : findings) {
    const std::string verdict = verdict_name(finding.verdict);
    ok = ok && finding.verdict != Finding::Verdict::failure;
    checks.push_back(finding_json(finding));
    const std::string padding(sizeof "warning" - 1 - verdict.size(), ' ');
    text += output.colored(color_of(finding.verdict), verdict) + padding + "  " + finding.check + ": " +
            printable(finding.found);
    if (!finding.advice.empty()) text += "; " + printable(finding.advice);
    text += '\n';
  }
  if (!text.empty()) text.pop_back();
  output.result({{"ok", ok}, {"checks", checks}}, text);
  return ok ? exit_yes : exit_no;
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
