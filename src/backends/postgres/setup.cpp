#include "backends/postgres/setup.hpp"

#include "backends/postgres/errors.hpp"
#include "core/durations.hpp"
#include "postgres_sql.hpp"

#include <libpq-fe.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

namespace syncguard::postgres {
namespace {

// Blocks. Throws LockError.
class BlockingConnection {
 public:
  explicit BlockingConnection(const ConnectOptions& options) : connection_(connect_blocking(options), PQfinish) {
    if (PQstatus(connection_.get()) != CONNECTION_OK) throw connect_error(PQerrorMessage(connection_.get()));
  }

  Rows operator()(std::string_view sql, const std::vector<std::string>& values = {}) {
    std::vector<const char*> texts;
    texts.reserve(values.size());
    for (const auto& value : values) texts.push_back(value.c_str());
    auto* result = PQexecParams(connection_.get(), std::string(sql).c_str(), static_cast<int>(texts.size()), nullptr,
                                texts.data(), nullptr, nullptr, 0);
    Rows rows(result);
    const auto status = PQresultStatus(result);
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) return rows;
    const char* field = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    sqlstate_ = field != nullptr ? field : "08000";
    throw server_error(sqlstate_, PQresultErrorMessage(result));
  }

  [[nodiscard]] const std::string& sqlstate() const noexcept { return sqlstate_; }

 private:
  std::unique_ptr<PGconn, void (*)(PGconn*)> connection_;
  std::string sqlstate_;
};

Tables resolve(BlockingConnection& connection, const Tables& names) {
  const auto& locks = names.locks_name();
  const auto& counters = names.counters_name();
  const auto found =
      find_tables(names, connection(sql::tables, {locks.schema, locks.table, counters.schema, counters.table}));
  const Rows creation = connection("SELECT coalesce((current_setting('syncguard.search_path')::text[])[1], '')");
  const auto place = [&](const Tables::Name& name, const std::optional<FoundTable>& table) {
    if (!name.schema.empty()) return name.schema;
    auto schema = table ? table->schema : creation.text(0, 0);
    if (schema.empty()) {
      throw LockError(
          ErrorCode::invalid_argument,
          "none of the schemas in this user's search path exists: name one in the options table and fence_table");
    }
    return schema;
  };
  return names.in_schemas(place(locks, found.locks), place(counters, found.counters));
}

std::vector<Tables::Part> missing_parts(BlockingConnection& connection, const Tables& tables) {
  std::vector<Tables::Part> missing;
  for (auto& part : tables.parts()) {
    const Rows found = part.kind == Tables::Part::Kind::function
                           ? connection(sql::has_function, {part.name})
                           : connection(sql::schema_has, {part.name, part.column});
    if (found.text(0, 0) != "t") missing.push_back(std::move(part));
  }
  return missing;
}

// The role that created the tables may have added triggers, which run with the rights of every client.
std::string warnings_about_owners(BlockingConnection& connection, const Tables& tables) {
  std::string warnings;
  for (const auto& table : {tables.locks(), tables.counters(), tables.waiters()}) {
    const auto owner = connection(sql::foreign_owner, {table});
    if (owner.count() == 0) continue;
    warnings += "; " + table + " belongs to " + owner.text(0, 0) +
                ", whose triggers run with the rights of every client: check that you trust this role";
  }
  return warnings;
}

std::string join_names(const std::vector<Tables::Part>& parts) {
  std::string names;
  const auto add = [&](const std::string& name) { names += (names.empty() ? "" : ", ") + name; };
  for (const auto& part : parts) {
    if (part.kind != Tables::Part::Kind::function) add(part.name + (part.column.empty() ? "" : "." + part.column));
  }
  const auto functions = std::ranges::count(parts, Tables::Part::Kind::function, &Tables::Part::kind);
  if (functions > 0) add(std::to_string(functions) + " functions");
  return names;
}

}  // namespace

std::string script_of(const Tables& names) {
  const auto schema = [](const Tables::Name& name) { return name.schema.empty() ? "public" : name.schema; };
  const auto tables = names.in_schemas(schema(names.locks_name()), schema(names.counters_name()));
  // No names in the comment: the name of a schema may contain a line break.
  std::string script =
      "-- Tables and functions for SyncGuard. This can be run again. Grant afterwards, to each role that uses locks:\n"
      "-- USAGE on the schema, and SELECT, INSERT, UPDATE, DELETE on the three tables.\n"
      "BEGIN;\nSET LOCAL lock_timeout = '2s';\n"
      "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext('syncguard setup'));\n";
  for (const auto& part : tables.parts())
    script += replaced(part.create, "CREATE FUNCTION", "CREATE OR REPLACE FUNCTION") + "\n";
  return script + "COMMIT;\n";
}

std::string set_up(const PostgresOptions& options) {
  const Tables names(options.table, options.fence_table);
  std::optional<Tables> tables;
  BlockingConnection connection({.connection = options.connection,
                                 .timeout = core::bounded(options.connect_timeout),
                                 .password = options.password_callback});
  try {
    connection(sql::begin);
    connection(sql::remember_search_path);
    connection(sql::pin_search_path);
    connection("SET LOCAL lock_timeout = '10s'");
    // Checking first takes no lock and needs no CREATE privilege: creating an existing index would wait for every open
    // transaction and block all acquires in the meantime.
    tables = resolve(connection, names);
    auto missing = missing_parts(connection, *tables);
    if (!missing.empty()) {
      // CREATE TABLE IF NOT EXISTS can fail if several processes run it at the same time.
      connection("SELECT pg_advisory_xact_lock(hashtext('syncguard setup'))");
      tables = resolve(connection, names);
      missing = missing_parts(connection, *tables);
      // While it waits for a lock on an existing table, all other users of the table wait behind it.
      connection("SET LOCAL lock_timeout = '2s'");
      for (const auto& part : missing) connection(part.create);
    }
    const auto warnings = warnings_about_owners(connection, *tables);
    connection(sql::commit);
    const auto all = tables->locks() + ", " + tables->counters() + ", " + tables->waiters();
    return (missing.empty() ? "nothing to do: the tables and their functions already exist: " + all
                            : "created: " + join_names(missing)) +
           warnings;
  } catch (const LockError& error) {
    if (connection.sqlstate() == "42501") {
      throw LockError(ErrorCode::auth_failed,
                      "this user may not create the tables and functions that locks need; run this as a user with "
                      "that right:\n" +
                          script_of(tables ? *tables : names),
                      Effect::none, error.context());
    }
    if (connection.sqlstate() == "3F000") {
      throw LockError(ErrorCode::invalid_argument, "the schema of the tables does not exist: create it first",
                      Effect::none, error.context());
    }
    throw;
  }
}

}  // namespace syncguard::postgres
