// A PostgreSQL server for one test program.
#pragma once

#include "servers/child_process.hpp"
#include "support/temporary_folder.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace syncguard::testing {

// Executes a statement with libpq, without the backend. Returns the first column of the first row, or an empty string.
// Throws on errors.
std::string execute_sql(const std::string& url, const std::string& sql, const std::vector<std::string>& values = {});

// Runs as the user postgres if the tests run as root, because PostgreSQL refuses to run as root.
class PostgresServer {
 public:
  struct Options {
    bool tls = false;
    // More lines for postgresql.conf.
    std::vector<std::string> configuration{};
    // If set, this server is a standby of that primary.
    const PostgresServer* primary = nullptr;
  };
  PostgresServer() : PostgresServer(Options{}) {}
  explicit PostgresServer(Options options);
  PostgresServer(const PostgresServer&) = delete;
  PostgresServer& operator=(const PostgresServer&) = delete;
  ~PostgresServer();

  [[nodiscard]] int port() const noexcept { return port_; }
  // As the superuser, by TCP. Example of options: "?table=x".
  [[nodiscard]] std::string url(const std::string& options = "") const;
  // As the superuser, by a Unix socket. Example of options: "&table=x".
  [[nodiscard]] std::string unix_url(const std::string& options = "") const;

  // As another user, by TCP.
  [[nodiscard]] std::string url_of(const std::string& user, const std::string& options = "") const;
  [[nodiscard]] std::filesystem::path file(const std::string& name) const { return folder_.path() / name; }

  void start();
  // Like `pg_ctl stop -m immediate`: the server does not shut down cleanly.
  void stop_at_once();
  // Kills all processes of the server with SIGKILL, as if the host had crashed.
  void kill();
  // Like `pg_ctl stop -m fast`: closes connections and shuts down cleanly.
  void stop_fast();
  void pause() const;
  void resume() const;
  // Promotes a standby to primary after it has replayed everything it received.
  void promote() const { execute("SELECT pg_promote()"); }
  // Returns when the standby has replayed everything that this primary has written so far.
  void wait_for_replay_on(const PostgresServer& standby) const;

  std::string execute(const std::string& sql, const std::vector<std::string>& values = {}) const {
    return execute_sql(url(), sql, values);
  }

 private:
  [[nodiscard]] std::filesystem::path data() const { return folder_.path() / "data"; }
  void make_data() const;
  const TemporaryFolder folder_;
  const Options options_;
  int port_ = 0;
  std::unique_ptr<ChildProcess> process_;
};

// PgBouncer in transaction mode in front of a server.
class PgBouncer {
 public:
  // configuration: more lines for pgbouncer.ini.
  explicit PgBouncer(const PostgresServer& server, std::string configuration = "");

  [[nodiscard]] int port() const noexcept { return port_; }
  [[nodiscard]] std::string url(const std::string& options = "") const;
  // Starts it again if it has crashed, as a service manager would. PgBouncer 1.18 crashes if a client closes the
  // connection of a cancel request early ("bad client state").
  void restart_if_ended(const PostgresServer& server);

 private:
  void start(const PostgresServer& server, int port);

  const TemporaryFolder folder_;
  const std::string configuration_;
  int port_ = 0;
  std::unique_ptr<ChildProcess> process_;
};

}  // namespace syncguard::testing
