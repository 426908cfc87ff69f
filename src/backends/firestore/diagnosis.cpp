#include "backends/firestore/diagnosis.hpp"

#include "core/findings.hpp"

namespace syncguard::firestore {
namespace {

using core::fine;
using core::warning;
using std::chrono::steady_clock;

// All that locks do, on documents that nobody has.
asio::awaitable<void> examine(Database& database, const Names::OfKey& names, const LockId& id, CallLimits limits,
                              std::vector<Finding>& findings) {
  core::Contact contact;
  for (int i = 0; i < core::Contact::requests; ++i) {
    std::vector<std::string> wanted = {names.lock, names.counter};
    const auto sent_at = steady_clock::now();
    co_await database.read(std::move(wanted), limits);
    contact.answered(steady_clock::now() - sent_at, database.clock_skew());
  }
  contact.report(findings);

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
  try {
    co_await examine(database, names, id, limits, findings);
  } catch (const LockError& error) {
    findings.push_back(core::obstacle(error));
    co_return findings;
  }
  try {
    const std::function<void()> nothing = [] {};
    co_await listener.add(names.lock, id, nothing, limits);
    listener.remove(names.lock, id);
    findings.push_back(fine("listening", "possible: waiters are woken"));
  } catch (const LockError& error) {
    findings.push_back(core::no_wake_ups("listening", error, "let this account listen to the lock collection"));
  }
  co_return findings;
}

}  // namespace syncguard::firestore
