// A real PostgreSQL, private to a test program.
#pragma once

#include "servers/child_process.hpp"
#include "temporary_folder.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace syncguard::testing {

// Run as another user where the tests run as root, which PostgreSQL does not do.
class PostgresServer {
 public:
  struct Options {
    bool tls = false;
    // More lines of its configuration.
    std::vector<std::string> configuration{};
  };
  PostgresServer() : PostgresServer(Options{}) {}
  explicit PostgresServer(Options options);
  PostgresServer(const PostgresServer&) = delete;
  PostgresServer& operator=(const PostgresServer&) = delete;
  ~PostgresServer();

  [[nodiscard]] int port() const noexcept { return port_; }
  // As the superuser, by TCP. Options as in "?table=x".
  [[nodiscard]] std::string url(const std::string& options = "") const;
  // By a Unix socket.
  [[nodiscard]] std::string unix_url(const std::string& options = "") const;

  // By TCP, as somebody else.
  [[nodiscard]] std::string url_of(const std::string& user, const std::string& options = "") const;
  [[nodiscard]] std::filesystem::path file(const std::string& name) const { return folder_.path() / name; }

  void start();
  // As `pg_ctl stop -m immediate`: no more than a kill leaves behind.
  void stop_at_once();
  // As `pg_ctl stop -m fast`: connections are closed, everything is put in order.
  void stop_fast();
  void pause() const;
  void resume() const;

  // A statement from outside, by nothing but libpq: the first column of its first row, if there is one. Throws for an
  // error.
  std::string execute(const std::string& sql, const std::vector<std::string>& values = {}) const;

 private:
  [[nodiscard]] std::filesystem::path data() const { return folder_.path() / "data"; }
  const TemporaryFolder folder_;
  const Options options_;
  int port_ = 0;
  std::unique_ptr<ChildProcess> process_;
};

// A pooler of transactions in front of a server.
class PgBouncer {
 public:
  explicit PgBouncer(const PostgresServer& server);

  [[nodiscard]] std::string url(const std::string& options = "") const;

 private:
  void start(const PostgresServer& server, int port);

  const TemporaryFolder folder_;
  int port_ = 0;
  std::unique_ptr<ChildProcess> process_;
};

}  // namespace syncguard::testing
