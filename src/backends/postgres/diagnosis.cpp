#include "backends/postgres/diagnosis.hpp"

#include "async/system_now.hpp"
#include "async/wake_up.hpp"
#include "core/clock_skew.hpp"
#include "core/findings.hpp"
#include "postgres_sql.hpp"

#include <libpq-fe.h>

#include <algorithm>
#include <chrono>
#include <cstring>
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

const std::string run_setup = "run `syncguard setup`";

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
  refused
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

// As libpq would have it: from the URL, else from the environment or its default.
std::string libpq_setting(const std::string& connection, const char* keyword) {
  const auto value_in = [&](PQconninfoOption* options) {
    const std::unique_ptr<PQconninfoOption, void (*)(PQconninfoOption*)> owned(options, PQconninfoFree);
    for (const auto* option = options; option != nullptr && option->keyword != nullptr; ++option) {
      if (std::strcmp(option->keyword, keyword) == 0 && option->val != nullptr) return std::string(option->val);
    }
    return std::string();
  };
  const auto given = value_in(PQconninfoParse(connection.c_str(), nullptr));
  return given.empty() ? value_in(PQconndefaults()) : given;
}

// Of a list of hosts, any may be the one that is connected to.
bool is_local(const std::string& hosts) {
  return std::ranges::all_of(parts_of(hosts), [](std::string_view host) {
    return host.empty() || host.starts_with('/') || host.starts_with('@') || host == "localhost" ||
           host.starts_with("127.") || host == "::1";
  });
}

Finding encryption(const std::string& connection) {
  const auto host = libpq_setting(connection, "host");
  const auto address = libpq_setting(connection, "hostaddr");
  if (is_local(host) && is_local(address)) return fine("TLS", "not needed: the server is on this host");
  const auto mode = libpq_setting(connection, "sslmode");
  if (mode == "verify-full") return fine("TLS", "sslmode is verify-full");
  return warning("TLS", "with sslmode " + mode + " nobody verifies whom the password goes to",
                 "add sslmode=verify-full to the URL, and sslrootcert where the certificate is your own");
}

void look_at_tables(const Rows& rows, const Tables& tables, std::vector<Finding>& findings) {
  const auto there = [&](Table table) { return rows.text(table, exists) == "t"; };
  std::string missing;
  if (!there(locks)) missing = tables.locks();
  if (!there(counters)) missing += (missing.empty() ? "" : " and ") + tables.counters();
  if (!missing.empty()) {
    findings.push_back(failure("tables", missing + " not there", run_setup));
    return;
  }
  findings.push_back(fine("tables", tables.locks() + " and " + tables.counters() + " are there"));

  const auto denied = rows.text(locks, refused).empty() ? rows.text(counters, refused) : rows.text(locks, refused);
  if (denied.empty()) {
    findings.push_back(fine("authorised", "to read and write the tables"));
  } else {
    findings.push_back(failure("authorised", "this user may not " + denied + " on the tables",
                               "GRANT SELECT, INSERT, UPDATE, DELETE on both to it"));
  }

  auto wrong = missing_of(
      {"key text", "lock_id text", "expires_at_ms bigint", "acquired_at_ms bigint", "fence text", "user_key text"},
      rows.text(locks, columns));
  const auto wrong_counters =
      missing_of({"fence_key text", "fence bigint", "key_debug text"}, rows.text(counters, columns));
  if (!wrong_counters.empty()) wrong += (wrong.empty() ? "" : ", ") + wrong_counters;
  if (wrong.empty()) {
    findings.push_back(fine("columns", "as they should be"));
  } else {
    findings.push_back(failure("columns", "missing, or of another type: " + wrong,
                               "these tables belong to something else: name others with table and fence_table"));
  }

  auto unique = missing_of({"unique key", "unique lock_id"}, rows.text(locks, indexes));
  const auto unique_counters = missing_of({"unique fence_key"}, rows.text(counters, indexes));
  if (!unique_counters.empty()) unique += (unique.empty() ? "" : ", ") + unique_counters;
  if (!unique.empty()) {
    findings.push_back(
        failure("indexes", "missing or invalid: " + unique, run_setup + "; a primary key only ALTER TABLE adds"));
  } else if (const auto slow = missing_of({"expires_at_ms"}, rows.text(locks, indexes)); !slow.empty()) {
    findings.push_back(warning("indexes", "missing or invalid: " + slow + ", so that cleaning up is slow", run_setup));
  } else {
    findings.push_back(fine("indexes", "as they should be"));
  }

  if (!there(waiters)) {
    findings.push_back(warning("queue", tables.waiters() + " not there, so that waiting polls", run_setup));
  } else if (const auto no = rows.text(waiters, refused); !no.empty()) {
    findings.push_back(warning("queue",
                               "this user may not " + no + " on " + tables.waiters() + ", so that waiting polls",
                               "GRANT SELECT, INSERT, UPDATE, DELETE on it"));
  } else {
    findings.push_back(fine("queue", tables.waiters() + " is there: waiters are served in order"));
  }
}

void look_at_server(const Rows& rows, std::vector<Finding>& findings) {
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
  }
  const auto level = rows.text(0, isolation);
  if (level == "read committed") {
    findings.push_back(fine("isolation", "read committed by default"));
  } else {
    findings.push_back(warning("isolation",
                               level + " by default: this library asks for read committed by itself, others may not",
                               "set default_transaction_isolation to read committed for this user"));
  }
  const auto commit = rows.text(0, synchronous_commit);
  if (commit == "off") {
    findings.push_back(warning("synchronous_commit",
                               "off by default: this library turns it on for what it writes, others may not",
                               "set synchronous_commit to on for this user"));
  } else {
    findings.push_back(fine("synchronous_commit", commit));
  }
  if (rows.text(0, fsync_setting) == "on") {
    findings.push_back(fine("fsync", "on"));
  } else {
    findings.push_back(warning("fsync", "off: a crash of the host can lose fences and the database", "turn it on"));
  }
}

// Whether a waiter hears what it is told. Through a pooler that gives each transaction another connection, it does not.
asio::awaitable<void> look_at_listening(const Examiner& examiner, const PostgresOptions& options,
                                        std::vector<Finding>& findings) {
  const std::string past_the_pooler = "name a listen_url that leads to the server itself";
  try {
    const auto listener = co_await examiner.listener();
    if (!listener) {
      if (options.listen_url != "off") co_return;  // the queue is not there, which has been said
      findings.push_back(warning("listening", "turned off by listen_url, so that waiting polls", past_the_pooler));
      co_return;
    }
    const auto id = LockId::generate();
    const auto heard = std::make_shared<async::WakeUp>();
    const std::function<void()> wake = [heard] { heard->wake(); };
    const struct Leave {
      Listener& listener;
      const LockId& id;
      ~Leave() { listener.remove(id); }
    } leave{*listener, id};
    co_await listener->add(id, wake, examiner.limits);
    std::string name = "notify";
    std::string sql = "SELECT pg_notify('syncguard_wake', $1)";
    std::vector<std::string> values = {id.str()};
    (void)co_await examiner.ask(std::move(name), std::move(sql), std::move(values));
    const auto patience = std::min(examiner.limits.deadline, steady_clock::now() + std::chrono::seconds(1));
    const auto reason = co_await heard->wait(patience, examiner.limits.stop);
    async::expect_no_stop(examiner.limits.stop);
    findings.push_back(
        reason == async::WakeUp::Reason::woken
            ? fine("listening", "waiters are woken")
            : warning("listening", "what waiters are told does not arrive, so that waiting polls", past_the_pooler));
  } catch (const LockError& error) {
    findings.push_back(core::no_wake_ups("listening", error, past_the_pooler));
  }
}

}  // namespace

asio::awaitable<std::vector<Finding>> diagnose(Examiner examiner, const PostgresOptions& options, Tables tables) {
  std::vector<Finding> findings;
  std::optional<Rows> rows;
  try {
    core::Contact contact;
    for (int i = 0; i < core::Contact::requests; ++i) {
      std::string name = "clock";
      std::string sql = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
      std::vector<std::string> values;
      const auto sent_at = steady_clock::now();
      const Rows time = co_await examiner.ask(std::move(name), std::move(sql), std::move(values));
      const auto took = steady_clock::now() - sent_at;
      const auto host_time = async::system_now();
      const auto skew = core::clock_skew(host_time, std::chrono::ceil<milliseconds>(took),
                                         Timestamp(milliseconds(time.number(0, 0))));
      contact.answered(took, skew);
    }
    contact.report(findings);
    std::string name = "diagnosis";
    std::string sql(sql::diagnosis);
    std::vector<std::string> values = {tables.locks(), tables.counters(), tables.waiters()};
    rows.emplace(co_await examiner.ask(std::move(name), std::move(sql), std::move(values)));
    look_at_server(*rows, findings);
    look_at_tables(*rows, tables, findings);
    co_await look_at_listening(examiner, options, findings);
  } catch (const LockError& error) {
    findings.push_back(core::obstacle(error));
  }
  findings.push_back(encryption(options.connection));
  co_return findings;
}

}  // namespace syncguard::postgres
