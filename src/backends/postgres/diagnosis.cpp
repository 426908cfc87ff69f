#include "backends/postgres/diagnosis.hpp"

#include "async/event.hpp"
#include "core/expiry.hpp"
#include "core/findings.hpp"
#include "os/clocks.hpp"
#include "postgres_sql.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace syncguard::postgres {
namespace {

using core::failure;
using core::fine;
using core::warning;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* run_setup = "run `syncguard setup`";

// The columns of sql/diagnosis.sql.
enum Column : int {
  server_time,
  version,
  version_number,
  in_recovery,
  read_only,
  isolation,
  synchronous_commit,
  fsync_setting,
  exists,
  columns,
  indexes,
  refused,
  attached,
  open_schemas,
  encoding,
  standbys,
  synchronous_standbys,
  row_security
};
enum Table : int { locks, counters, waiters };

std::set<std::string, std::less<>> parts_of(const std::string& list) {
  std::set<std::string, std::less<>> parts;
  std::string_view rest = list;
  while (!rest.empty()) {
    const auto part = rest.substr(0, rest.find(','));
    parts.emplace(part);
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
  }
  return parts;
}

std::string missing_of(std::initializer_list<std::string_view> wanted, const std::string& list) {
  const auto there = parts_of(list);
  std::string missing;
  for (const auto part : wanted) {
    if (!there.contains(part)) missing += (missing.empty() ? "" : ", ") + std::string(part);
  }
  return missing;
}

}  // namespace

Finding encryption(const std::string& check, const Security& security) {
  if (security.local) return fine(check, "not needed: the server is on this host");
  const std::string advice =
      "add sslmode=verify-full to the URL, and sslrootcert if you use your own certificate authority";
  if (!security.encrypted) return warning(check, "the connection to a remote server is not encrypted", advice);
  if (security.sslmode == "verify-full") return fine(check, "encrypted, and the server is verified (verify-full)");
  return warning(check, "with sslmode " + security.sslmode + " the server that receives the password is not verified",
                 advice);
}

namespace {

// The tables with a value in this column: "table: value; table: value".
std::string values_of(const Rows& rows, const Tables& tables, Column column) {
  std::string found;
  for (const auto& [table, name] : {std::pair{locks, &tables.locks()}, std::pair{counters, &tables.counters()},
                                    std::pair{waiters, &tables.waiters()}}) {
    if (const auto value = rows.text(table, column); !value.empty()) {
      found += (found.empty() ? "" : "; ") + *name + ": " + value;
    }
  }
  return found;
}

// SyncGuard attaches nothing to the tables; any trigger, rule or function of a constraint runs with every operation, as
// its user.
Finding attachments(const Rows& rows, const Tables& tables) {
  const auto found = values_of(rows, tables, attached);
  if (found.empty()) return fine("triggers", "none, and no rules or functions of other roles");
  return warning("triggers",
                 found +
                     ": code of another role that runs as this user with every operation, and can discard its "
                     "changes",
                 "drop those that you do not recognize");
}

// A policy hides rows without an error: a lock that a client cannot see looks free to it.
Finding row_level_security(const Rows& rows, const Tables& tables) {
  const std::string check = "row-level security";
  const auto found = values_of(rows, tables, row_security);
  if (found.empty()) return fine(check, "off");
  const bool applies = found.find("active") != std::string::npos;
  return warning(check,
                 found + (applies ? ": policies decide which locks this user sees and changes"
                                  : ": it does not apply to this user, but it may to others"),
                 "turn it off with ALTER TABLE … DISABLE ROW LEVEL SECURITY, and use GRANT or other tables instead");
}

// This library uses no objects of the search path, but other programs may.
Finding search_path(const Rows& rows) {
  const auto open = rows.text(0, open_schemas);
  if (open.empty()) return fine("search path", "only owners can create objects in its schemas");
  return warning(
      "search path",
      "other roles may create objects in " + open + ": this library uses none of them, but other programs may",
      "REVOKE CREATE ON SCHEMA … FROM PUBLIC and from the roles that have it");
}

void check_tables(const Rows& rows, const FoundTables& found, const Tables& tables, std::vector<Finding>& findings) {
  const auto there = [&](Table table) { return rows.text(table, exists) == "t"; };
  std::string missing;
  if (!there(locks)) missing = tables.locks();
  if (!there(counters)) missing += (missing.empty() ? "" : " and ") + tables.counters();
  if (!missing.empty()) {
    const bool both = !there(locks) && !there(counters);
    findings.push_back(failure("tables", missing + (both ? " do" : " does") + " not exist", run_setup));
    return;
  }
  findings.push_back(fine("tables", tables.locks() + " of " + found.locks->owner + " and " + tables.counters() +
                                        " of " + found.counters->owner + " exist"));

  const auto denied = rows.text(locks, refused).empty() ? rows.text(counters, refused) : rows.text(locks, refused);
  if (denied.empty()) {
    findings.push_back(fine("authorized", "to read and write the tables"));
  } else {
    findings.push_back(failure("authorized", "this user may not " + denied + " on the tables",
                               "GRANT SELECT, INSERT, UPDATE, DELETE on both to it"));
  }

  auto wrong = missing_of(
      {"key text", "lock_id text", "expires_at_ms bigint", "acquired_at_ms bigint", "fence text", "user_key text"},
      rows.text(locks, columns));
  const auto wrong_counters =
      missing_of({"fence_key text", "fence bigint", "key_debug text"}, rows.text(counters, columns));
  if (!wrong_counters.empty()) wrong += (wrong.empty() ? "" : ", ") + wrong_counters;
  if (wrong.empty()) {
    findings.push_back(fine("columns", "as expected"));
  } else {
    findings.push_back(failure("columns", "missing, or of another type: " + wrong,
                               "these tables belong to another program: choose others with table and fence_table"));
  }

  if (found.locks->has_holder) {
    findings.push_back(fine("holder labels", "stored with the locks"));
  } else {
    findings.push_back(
        warning("holder labels",
                "not stored: " + tables.locks() + " has no columns holder and holder_lock_id that this user may use",
                run_setup));
  }

  findings.push_back(attachments(rows, tables));
  findings.push_back(row_level_security(rows, tables));

  auto unique = missing_of({"unique key", "unique lock_id"}, rows.text(locks, indexes));
  const auto unique_counters = missing_of({"unique fence_key"}, rows.text(counters, indexes));
  if (!unique_counters.empty()) unique += (unique.empty() ? "" : ", ") + unique_counters;
  if (!unique.empty()) {
    findings.push_back(failure("indexes", "missing or invalid: " + unique,
                               std::string(run_setup) + "; add a primary key with ALTER TABLE"));
  } else if (const auto slow = missing_of({"expires_at_ms"}, rows.text(locks, indexes)); !slow.empty()) {
    findings.push_back(warning("indexes", "missing or invalid: " + slow + "; cleanup is slow without it", run_setup));
  } else {
    findings.push_back(fine("indexes", "as expected"));
  }

  if (!there(waiters)) {
    findings.push_back(warning("queue", tables.waiters() + " does not exist, so waiters poll", run_setup));
  } else if (!found.owns_queue()) {
    findings.push_back(warning("queue",
                               tables.waiters() + " belongs to " + found.waiters->owner +
                                   " and not to the owner of the locks: it is not used, so waiters poll",
                               std::string("drop it or change its owner, and ") + run_setup));
  } else if (const auto no = rows.text(waiters, refused); !no.empty()) {
    findings.push_back(warning("queue", "this user may not " + no + " on " + tables.waiters() + ", so waiters poll",
                               "GRANT SELECT, INSERT, UPDATE, DELETE on it"));
  } else {
    findings.push_back(fine("queue", tables.waiters() + " exists, so the functions can serve waiters in order"));
  }
}

Finding functions(FoundFunctions found, const FoundTables& found_tables, const Tables& tables) {
  switch (found) {
    case FoundFunctions::usable:
      if (found_tables.suit_functions()) return fine("functions", "installed: an operation is one call");
      return warning("functions",
                     "installed, but not called, because this user cannot use " + tables.waiters() +
                         " or the columns holder and holder_lock_id: operations are slower, and waiters poll",
                     std::string(run_setup) + ", and grant this user the same rights on all three tables");
    case FoundFunctions::missing:
      return warning("functions", "missing, so operations are slower, and waiters poll", run_setup);
    case FoundFunctions::foreign:
      return warning("functions",
                     "they belong to a role other than the owner of the locks: they are not called, and waiters poll",
                     std::string("drop them or change their owner, and ") + run_setup);
    case FoundFunctions::not_executable:
      break;
  }
  std::string names;
  const auto functions = tables.functions();
  for (const auto* function : functions.all()) names += (names.empty() ? "" : ", ") + function->signature;
  return warning("functions", "this user may not call them, so operations are slower, and waiters poll",
                 "GRANT EXECUTE ON FUNCTION " + names + " to it");
}

// What a failover loses: a grant waits until the synchronous standbys have it, and does not wait for others.
Finding replication(const Rows& rows) {
  const std::string check = "replication";
  const auto count = rows.number(0, standbys);
  const auto connected = std::to_string(count) + (count == 1 ? " standby" : " standbys");
  const auto names = rows.text(0, synchronous_standbys);
  if (!names.empty()) {
    return fine(check,
                connected + " connected; a failover to a synchronous one loses no lock (synchronous_standby_names)");
  }
  if (count == 0) return fine(check, "a primary without standbys");
  return warning(check, connected + " connected, none synchronous: a failover can lose the newest locks",
                 "set synchronous_standby_names, or check fences in the store that the lock protects");
}

void check_server(const Rows& rows, std::vector<Finding>& findings) {
  constexpr std::int64_t oldest = 130000;
  const auto name = "PostgreSQL " + rows.text(0, version);
  if (rows.number(0, version_number) >= oldest) {
    findings.push_back(fine("server", name));
  } else {
    findings.push_back(failure("server", name + " is too old", "use PostgreSQL 13 or newer"));
  }
  if (rows.text(0, in_recovery) == "t") {
    findings.push_back(
        failure("writable", "this is a standby", "connect to the primary (target_session_attrs=read-write)"));
  } else if (rows.text(0, read_only) == "on") {
    findings.push_back(
        failure("writable", "default_transaction_read_only is on for this user or database", "turn it off"));
  } else {
    findings.push_back(fine("writable", "a primary that can be written to"));
    findings.push_back(replication(rows));
  }
  const auto level = rows.text(0, isolation);
  if (level == "read committed") {
    findings.push_back(fine("isolation", "read committed by default"));
  } else {
    findings.push_back(
        warning("isolation", level + " by default: this library sets read committed itself, but other programs may not",
                "set default_transaction_isolation to read committed for this user"));
  }
  const auto commit = rows.text(0, synchronous_commit);
  if (commit == "off") {
    findings.push_back(warning(
        "synchronous_commit", "off by default: this library turns it on for its own writes, but other programs may not",
        "set synchronous_commit to on for this user"));
  } else {
    findings.push_back(fine("synchronous_commit", commit));
  }
  if (rows.text(0, encoding) == "UTF8") {
    findings.push_back(fine("encoding", "UTF8"));
  } else {
    findings.push_back(failure("encoding", rows.text(0, encoding) + ": not every key can be stored",
                               "use a database whose encoding is UTF8"));
  }
  if (rows.text(0, fsync_setting) == "on") {
    findings.push_back(fine("fsync", "on"));
  } else {
    findings.push_back(warning("fsync", "off: a crash of the host can lose fences and the database", "turn it on"));
  }
}

// Checks whether notifications reach a waiter, which they do not through a transaction pooler. Returns the security of
// the listening connection, if there is one.
asio::awaitable<std::optional<Security>> check_listening(Session& session, CallLimits limits,
                                                         std::vector<Finding>& findings) {
  const std::string bypass_pooler = "set listen_url to an address that bypasses the pooler";
  try {
    const auto wake_listener = co_await session.wake_listener(limits);
    if (!wake_listener) {
      if (session.options().listen_url != "off")
        co_return std::nullopt;  // there is no queue, which is already a finding
      findings.push_back(warning("listening", "turned off by listen_url: waiters poll", bypass_pooler));
      co_return std::nullopt;
    }
    const auto id = LockId::generate();
    const async::Event received_wake_up;
    const struct Leave {
      backends::Waiters& waiters;
      const LockId& id;
      ~Leave() { waiters.remove(id); }
    } leave{session.waiters(), id};
    const auto wake = [received_wake_up] { received_wake_up.set(); };
    session.waiters().add(id, {.key = "syncguard", .wake = wake, .name = id.str()});
    co_await wake_listener->listen(limits);
    std::string sql = "SELECT pg_notify('syncguard_wake', $1)";
    std::vector<std::string> values = {id.str()};
    (void)co_await session.ask(std::move(sql), std::move(values), limits);
    const auto deadline = std::min(limits.deadline, steady_clock::now() + std::chrono::seconds(1));
    const auto result = co_await received_wake_up.wait(deadline, limits.stop);
    async::expect_no_stop(limits.stop);
    findings.push_back(result == async::WaitResult::set
                           ? fine("listening", "waiters are woken")
                           : warning("listening", "notifications do not arrive: waiters poll", bypass_pooler));
    co_return wake_listener->security();
  } catch (const LockError& error) {
    findings.push_back(core::no_wake_ups("listening", error, bypass_pooler));
  }
  co_return std::nullopt;
}

// Operations hold these locks briefly. A session that keeps one blocks all keys with the same hash, and any role that
// may connect can do that.
asio::awaitable<void> check_advisory_locks(Session& session, CallLimits limits, std::vector<Finding>& findings) {
  struct Holder {
    std::string process;
    std::string role;
    auto operator<=>(const Holder&) const = default;
  };
  // The holders of each lock.
  std::map<std::pair<std::string, std::string>, std::set<Holder>> kept;
  constexpr std::chrono::milliseconds recheck_delay{500};
  for (const bool again : {false, true}) {
    std::string sql(sql::advisory_locks);
    std::vector<std::string> values;
    const Rows rows = co_await session.ask(std::move(sql), std::move(values), limits);
    std::map<std::pair<std::string, std::string>, std::set<Holder>> held;
    for (int row = 0; row < rows.count(); ++row) {
      const std::pair lock{rows.text(row, 2), rows.text(row, 3)};
      const Holder holder{.process = rows.text(row, 0), .role = rows.text(row, 1)};
      if (!again || (kept.contains(lock) && kept[lock].contains(holder))) held[lock].insert(holder);
    }
    kept = std::move(held);
    if (kept.empty()) break;
    if (!again) {
      (void)co_await async::sleep_until(std::min(limits.deadline, steady_clock::now() + recheck_delay), limits.stop);
      async::expect_no_stop(limits.stop);
    }
  }
  if (kept.empty()) {
    findings.push_back(fine("advisory locks", "no session keeps one"));
    co_return;
  }
  std::set<Holder> holders;
  for (const auto& [lock, of_lock] : kept) holders.insert(of_lock.begin(), of_lock.end());
  std::string names;
  for (const auto& holder : holders) {
    names += names.empty() ? "" : ", ";
    names += holder.process == "0" ? "a prepared transaction"
                                   : "process " + holder.process + (holder.role.empty() ? "" : " of " + holder.role);
  }
  findings.push_back(warning("advisory locks",
                             names + " kept " + std::to_string(kept.size()) +
                                 " for half a second: operations on keys that share them time out",
                             "end that session with pg_terminate_backend if it is not yours"));
}

}  // namespace

asio::awaitable<std::vector<Finding>> diagnose(Session& session, CallLimits limits) {
  std::vector<Finding> findings;
  std::optional<Rows> rows;
  try {
    core::LatencyCheck latency_check;
    for (int i = 0; i < core::LatencyCheck::requests; ++i) {
      std::string sql = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
      std::vector<std::string> values;
      const auto sent_at = steady_clock::now();
      const Rows time = co_await session.ask(std::move(sql), std::move(values), limits);
      const auto took = steady_clock::now() - sent_at;
      const auto host_time = os::system_now();
      const auto skew = core::clock_skew(host_time, std::chrono::ceil<milliseconds>(took),
                                         Timestamp(milliseconds(time.number(0, 0))));
      latency_check.add(took, skew);
    }
    latency_check.report(findings);
    FoundTables found;
    std::optional<LockError> unclear;
    try {
      found = co_await session.find_tables(limits);
    } catch (const LockError& error) {
      if (error.code() != ErrorCode::invalid_argument) throw;
      unclear = error;
    }
    const auto schema = [](const std::optional<FoundTable>& table) { return table ? table->schema : std::string(); };
    const auto tables = session.names().in_schemas(schema(found.locks), schema(found.counters));
    std::string sql(sql::diagnosis);
    std::vector<std::string> values = {tables.locks(), tables.counters(), tables.waiters()};
    rows.emplace(co_await session.ask(std::move(sql), std::move(values), limits));
    check_server(*rows, findings);
    findings.push_back(search_path(*rows));
    if (unclear) {
      findings.push_back(failure("tables", unclear->what(), "name them with their schemas: table and fence_table"));
    } else {
      check_tables(*rows, found, tables, findings);
    }
    if (!unclear && found.locks && found.counters) {
      const auto found_functions = co_await session.find_functions(tables, found, limits);
      findings.push_back(functions(found_functions, found, tables));
      const auto source = session.options().fences;
      findings.push_back(core::fences(source, "a failover or a restore"));
      if (source == FenceSource::clock && rows->text(counters, refused).find("SELECT") == std::string::npos) {
        std::string highest_sql = tables.in(sql::highest_counter);
        std::vector<std::string> no_values;
        const Rows highest = co_await session.ask(std::move(highest_sql), std::move(no_values), limits);
        findings.push_back(
            core::fence_counters(static_cast<std::uint64_t>(std::max<std::int64_t>(highest.number(0, 0), 0)),
                                 Timestamp(milliseconds(rows->number(0, server_time))),
                                 highest.text(0, 1) == "t" ? core::Examined::all : core::Examined::some));
      }
    }
    co_await check_advisory_locks(session, limits, findings);
    const auto listening = co_await check_listening(session, limits, findings);
    // Named before it is used: g++ 12 destroys temporaries of an expression with co_await twice.
    const Security security = co_await session.security(limits);
    findings.push_back(encryption("TLS", security));
    if (listening && !session.options().listen_url.empty())
      findings.push_back(encryption("TLS of listen_url", *listening));
  } catch (const LockError& error) {
    findings.push_back(core::unreachable(error));
  }
  co_return findings;
}

}  // namespace syncguard::postgres
