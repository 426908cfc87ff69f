#include "backends/firestore/diagnosis.hpp"

#include "core/causes.hpp"
#include "core/findings.hpp"

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace syncguard::firestore {
namespace {

using core::failure;
using core::fine;
using core::warning;
using std::chrono::steady_clock;

// The command that restores a field's index. Firestore creates it automatically, unless the field is exempted.
std::string command_for(const char* field, const Names& names) {
  return std::string("gcloud firestore indexes fields update ") + field +
         " --collection-group=" + names.collection_id() + " --index=order=ascending";
}

// Whether the index that the query needs exists.
asio::awaitable<bool> has_index(std::function<asio::awaitable<void>()> query) {
  try {
    co_await query();
    co_return true;
  } catch (const LockError& error) {
    // FAILED_PRECONDITION maps to this code. Its other causes would already have failed the earlier read.
    if (error.code() != ErrorCode::invalid_argument) throw;
  }
  co_return false;
}

Finding clock_skew(const HostTime& time) {
  if (!time.is_reliable()) {
    return failure("clock skew", core::message_of(unreliable_clock(time)),
                   "until then, no locks are granted or extended");
  }
  return core::skew(time.skew->certain());
}

// Tries all operations that locks need, on documents that do not exist.
asio::awaitable<void> examine(Session& session, const Names::OfKey& names, const LockId& id, CallLimits limits,
                              std::vector<Finding>& findings) {
  core::LatencyCheck latency_check;
  for (int i = 0; i < core::LatencyCheck::requests; ++i) {
    std::vector<std::string> wanted = {names.lock, names.counter};
    const auto sent_at = steady_clock::now();
    co_await session.read(std::move(wanted), limits);
    latency_check.add(steady_clock::now() - sent_at, std::nullopt);
  }
  latency_check.report(findings);
  findings.push_back(clock_skew(session.host_time()));

  const auto find = [&]() -> asio::awaitable<void> { co_await session.find(id, limits); };
  if (co_await has_index(find)) {
    findings.push_back(fine("index of lockId", "exists: locks are found by their id"));
  } else {
    findings.push_back(failure("index of lockId", "missing: locks cannot be released or extended",
                               "create it: " + command_for("lockId", session.names())));
  }
  const auto find_expired = [&]() -> asio::awaitable<void> { co_await session.find_expired(Timestamp(), 1, limits); };
  if (!co_await has_index(find_expired)) {
    findings.push_back(warning("index of expiresAtMs", "missing: `syncguard cleanup` finds nothing",
                               "create it: " + command_for("expiresAtMs", session.names())));
  }

  const auto list = [&]() -> asio::awaitable<void> {
    const std::string from_the_beginning;
    co_await session.list(from_the_beginning, from_the_beginning, 1, limits);
  };
  if (!co_await has_index(list)) {
    findings.push_back(warning("index of key", "missing: locks cannot be listed",
                               "create it: " + command_for("key", session.names())));
  }

  // This commit needs the permission to write, but changes nothing, because it requires that the document exists.
  wire::Write impossible;
  impossible.set_delete_(names.lock);
  impossible.mutable_current_document()->set_exists(true);
  std::vector<wire::Write> writes = {impossible};
  co_await session.commit(std::move(writes), limits);
  findings.push_back(fine("authorized", "to read and write the lock collection"));
}

// The fences of a collection are text of 15 digits: the last in their order is the highest.
asio::awaitable<Finding> examine_counters(Session& session, CallLimits limits) {
  const auto time = session.host_time();
  try {
    const auto counters = co_await session.find_highest_counter(limits);
    co_return core::fence_counters(counters.empty() ? 0 : counter_of(counters.front()).value(), time.server_now());
  } catch (const LockError& error) {
    // A missing index, or a document that is not a counter.
    if (error.code() != ErrorCode::invalid_argument && error.code() != ErrorCode::internal) throw;
    co_return fine("fence counters", std::string("not examined: ") + error.what());
  }
}

}  // namespace

asio::awaitable<std::vector<Finding>> diagnose(Session& session, WakeListener& wake_listener, bool is_emulator,
                                               FenceSource fences, CallLimits limits) {
  const auto id = LockId::generate();
  const auto names = session.names().of(Key(id.str()));
  std::vector<Finding> findings;
  if (is_emulator) {
    findings.push_back(warning("server", "an emulator: locks and fences are lost when it stops",
                               "unset FIRESTORE_EMULATOR_HOST for anything but tests"));
  }
  try {
    co_await examine(session, names, id, limits, findings);
    findings.push_back(core::fences(fences, "a restore or a deletion"));
    if (fences == FenceSource::clock) {
      auto finding = co_await examine_counters(session, limits);
      findings.push_back(std::move(finding));
    }
  } catch (const LockError& error) {
    findings.push_back(core::unreachable(error));
    co_return findings;
  }
  try {
    const std::function<void()> nothing = [] {};
    co_await wake_listener.add(names.lock, id, nothing, limits);
    wake_listener.remove(names.lock, id);
    findings.push_back(fine("listening", "possible: waiters are woken"));
  } catch (const LockError& error) {
    findings.push_back(core::no_wake_ups("listening", error, "let this account listen to the lock collection"));
  }
  co_return findings;
}

}  // namespace syncguard::firestore
