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
  // Lines of its configuration.
  explicit PostgresServer(std::vector<std::string> configuration = {});
  PostgresServer(const PostgresServer&) = delete;
  PostgresServer& operator=(const PostgresServer&) = delete;
  ~PostgresServer();

  [[nodiscard]] int port() const noexcept { return port_; }
  // As the superuser, by TCP. Options as in "?table=x".
  [[nodiscard]] std::string url(const std::string& options = "") const;
  // By a Unix socket.
  [[nodiscard]] std::string unix_url(const std::string& options = "") const;

  void start();
  // As `pg_ctl stop -m immediate`: no more than a kill leaves behind.
  void stop_at_once();
  void pause() const;
  void resume() const;

  // A statement from outside, by nothing but libpq: the first column of its first row, if there is one. Throws for an
  // error.
  std::string execute(const std::string& sql, const std::vector<std::string>& values = {}) const;

 private:
  [[nodiscard]] std::filesystem::path data() const { return folder_.path() / "data"; }
  [[nodiscard]] std::vector<std::string> command(std::vector<std::string> words) const;

  const TemporaryFolder folder_;
  const std::vector<std::string> configuration_;
  int port_ = 0;
  std::unique_ptr<ChildProcess> process_;
};

}  // namespace syncguard::testing
