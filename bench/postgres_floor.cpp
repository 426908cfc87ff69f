// Blocking libpq in pipeline mode with the same prepared statements as the library.

#include "backends/postgres/statements.hpp"
#include "backends/url.hpp"
#include "floor.hpp"

#include <syncguard/storage_key.hpp>

#include <libpq-fe.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>

namespace syncguard::bench {
namespace {

class Connection {
 public:
  explicit Connection(const std::string& text) : connection_(PQconnectdb(text.c_str()), PQfinish) {
    if (PQstatus(connection_.get()) != CONNECTION_OK) throw std::runtime_error("libpq cannot connect");
    PQenterPipelineMode(connection_.get());
  }

  void send(const std::string& sql, const std::vector<std::string>& values) {
    std::vector<const char*> texts;
    for (const auto& value : values) texts.push_back(value.c_str());
    const auto count = static_cast<int>(texts.size());
    const auto [found, is_new] = prepared_.try_emplace(sql, "statement " + std::to_string(prepared_.size()));
    const char* const name = found->second.c_str();
    if (is_new) PQsendPrepare(connection_.get(), name, sql.c_str(), count, nullptr);
    PQsendQueryPrepared(connection_.get(), name, count, texts.data(), nullptr, nullptr, 0);
  }

  void wait() {
    PQpipelineSync(connection_.get());
    for (;;) {
      const std::unique_ptr<PGresult, void (*)(PGresult*)> result(PQgetResult(connection_.get()), PQclear);
      const auto status = PQresultStatus(result.get());
      if (status == PGRES_PIPELINE_SYNC) return;
      if (result && status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
        throw std::runtime_error("libpq was refused");
      }
    }
  }

 private:
  const std::unique_ptr<PGconn, void (*)(PGconn*)> connection_;
  // The names of the statements, by their text.
  std::unordered_map<std::string, std::string> prepared_;
};

}  // namespace

Floor postgres_floor(const std::string& text) {
  BackendUrl url(text);
  const auto options = postgres::options_of(url);
  // As setup creates them where the URL names no schema.
  const auto schema = [](const postgres::Tables::Name& name) { return name.schema.empty() ? "public" : name.schema; };
  const postgres::Tables names(options.table, options.fence_table);
  const auto tables = names.in_schemas(schema(names.locks_name()), schema(names.counters_name()));
  postgres::FoundTable table{};
  table.is_table = table.trusted = table.usable = table.has_holder = true;
  const postgres::FoundTables found{.locks = table, .counters = table, .waiters = table};
  const auto sql = std::make_shared<const postgres::Statements>(tables, found, postgres::FoundFunctions::usable);
  const auto make_caller = [options, sql](const Key& key) -> std::function<void()> {
    const auto connection = std::make_shared<Connection>(options.connection);
    const auto call = [connection, sql](const postgres::Tables::Function& function,
                                        const std::vector<std::string>& values) {
      connection->send(sql->timeouts, {"1960", "1980"});
      connection->send(function.call, values);
      connection->wait();
    };
    return [=] {
      const auto id = LockId::generate().str();
      call(sql->functions->acquire, {key.str(), id, "30000", "fence:" + key.str(), key.str(), "true", "bench/1", ""});
      call(sql->functions->release, {id});
    };
  };
  return {.name = "libpq, calling the same functions", .callers = {1, 10}, .make_caller = make_caller};
}

}  // namespace syncguard::bench
