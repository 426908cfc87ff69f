// libpq in pipeline mode that sends the library's own statements and waits.

#include "backends/postgres/postgres_url.hpp"
#include "backends/postgres/statements.hpp"
#include "core/storage_key.hpp"
#include "floor.hpp"

#include <libpq-fe.h>

#include <memory>
#include <set>
#include <stdexcept>

namespace syncguard::bench {
namespace {

class Connection {
 public:
  explicit Connection(const std::string& text) : connection_(PQconnectdb(text.c_str()), PQfinish) {
    if (PQstatus(connection_.get()) != CONNECTION_OK) throw std::runtime_error("libpq cannot connect");
    PQenterPipelineMode(connection_.get());
  }

  void send(const std::string& name, const std::string& sql, const std::vector<std::string>& values) {
    if (prepared_.insert(name).second) PQsendPrepare(connection_.get(), name.c_str(), sql.c_str(), 0, nullptr);
    std::vector<const char*> texts;
    for (const auto& value : values) texts.push_back(value.c_str());
    PQsendQueryPrepared(connection_.get(), name.c_str(), static_cast<int>(texts.size()), texts.data(), nullptr, nullptr,
                        0);
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
  std::set<std::string> prepared_;
};

}  // namespace

Floor postgres_floor(const std::string& text) {
  BackendUrl url(text);
  const auto options = postgres::options_of(url);
  const auto sql = std::make_shared<const postgres::Statements>(postgres::Tables(options.table, options.fence_table),
                                                                postgres::Statements::Queue::exists);
  const auto make_caller = [options, sql](const Key& key) -> std::function<void()> {
    const auto connection = std::make_shared<Connection>(options.connection);
    const auto transaction = [connection, sql](const auto& steps) {
      connection->send("begin", sql->begin, {});
      connection->send("settings", sql->settings, {"1980"});
      steps();
      connection->send("commit", sql->commit, {});
      connection->wait();
    };
    return [=] {
      const auto id = LockId::generate().str();
      transaction([&] {
        connection->send("lock_key", sql->lock_key, {key.str()});
        connection->send("acquire", sql->acquire, {key.str(), id, "30000", "fence:" + key.str(), key.str()});
      });
      transaction([&] {
        connection->send("lock_id", sql->lock_id, {id});
        connection->send("release", sql->release, {id});
      });
    };
  };
  return {.name = "libpq, pipelined, the same statements", .callers = {1, 10}, .make_caller = make_caller};
}

}  // namespace syncguard::bench
