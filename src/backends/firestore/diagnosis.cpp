#include "backends/firestore/diagnosis.hpp"

#include "core/findings.hpp"

#include <algorithm>

namespace syncguard::firestore {
namespace {

using core::fine;
using core::warning;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// All that locks do, on documents that nobody has.
asio::awaitable<void> examine(Database& database, const Names::OfKey& names, const LockId& id, CallLimits limits,
                              std::vector<Finding>& findings) {
  constexpr int requests = 5;
  std::vector<steady_clock::duration> round_trips;
  std::optional<milliseconds> skew;
  for (int i = 0; i < requests; ++i) {
    std::vector<std::string> wanted = {names.lock, names.counter};
    const auto sent_at = steady_clock::now();
    co_await database.read(std::move(wanted), limits);
    // The first one includes connecting.
    if (i > 0) round_trips.push_back(steady_clock::now() - sent_at);
    const auto seen = database.clock_skew();
    if (seen && (!skew || std::chrono::abs(*seen) < std::chrono::abs(*skew))) skew = seen;
  }
  std::ranges::sort(round_trips);
  findings.push_back(fine("reachable", "yes"));
  findings.push_back(
      core::latency(std::chrono::duration_cast<std::chrono::microseconds>(round_trips[round_trips.size() / 2])));
  if (skew) findings.push_back(core::skew(*skew));

  co_await database.find(id, limits);
  findings.push_back(fine("index of lockId", "there: locks are found by their id"));

  // Needs the right to write, and cannot succeed: the document would have to exist.
  wire::Write impossible;
  impossible.set_delete_(names.lock);
  impossible.mutable_current_document()->set_exists(true);
  std::vector<wire::Write> writes = {impossible};
  co_await database.commit(std::move(writes), limits);
  findings.push_back(fine("authorised", "to read and write the lock collection"));
}

}  // namespace

asio::awaitable<std::vector<Finding>> diagnose(Database& database, Listener& listener, bool is_emulator,
                                               CallLimits limits) {
  const auto id = LockId::generate();
  const auto names = database.names().of(Key(id.str()));
  std::vector<Finding> findings;
  if (is_emulator) {
    findings.push_back(warning("server", "an emulator: locks and fences are gone when it ends",
                               "unset FIRESTORE_EMULATOR_HOST for anything but tests"));
  }
  std::optional<LockError> problem;
  try {
    co_await examine(database, names, id, limits, findings);
  } catch (const LockError& error) {
    problem = error;
  }
  if (problem) {
    if (problem->code() == ErrorCode::aborted) throw LockError(*problem);
    findings.push_back(core::obstacle(*problem));
    co_return findings;
  }
  try {
    const std::function<void()> nothing = [] {};
    co_await listener.add(names.lock, id, nothing, limits);
    listener.remove(names.lock, id);
    findings.push_back(fine("listening", "possible: waiters are woken"));
  } catch (const LockError& error) {
    problem = error;
  }
  if (problem) {
    if (problem->code() == ErrorCode::aborted) throw LockError(*problem);
    findings.push_back(warning("listening", std::string("fails, so that waiting polls: ") + problem->what(),
                               "let this account listen to the lock collection"));
  }
  co_return findings;
}

}  // namespace syncguard::firestore
