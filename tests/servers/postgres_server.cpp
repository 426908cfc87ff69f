#include "servers/postgres_server.hpp"

#include <libpq-fe.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace syncguard::testing {
namespace {

// Where the newest server's programs are: Debian has them outside the search path.
std::filesystem::path programs() {
  std::vector<std::filesystem::path> found;
  const std::filesystem::path versions = "/usr/lib/postgresql";
  if (std::filesystem::exists(versions)) {
    for (const auto& version : std::filesystem::directory_iterator(versions)) {
      if (std::filesystem::exists(version.path() / "bin" / "postgres")) found.push_back(version.path() / "bin");
    }
  }
  std::ranges::sort(found);
  return found.empty() ? std::filesystem::path() : found.back();
}

}  // namespace

// Drops root, if the tests have it.
std::vector<std::string> PostgresServer::command(std::vector<std::string> words) const {
  words.front() = programs() / words.front();
  if (geteuid() != 0) return words;
  std::vector<std::string> as_other = {"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"};
  as_other.insert(as_other.end(), words.begin(), words.end());
  return as_other;
}

PostgresServer::PostgresServer(std::vector<std::string> configuration) : configuration_(std::move(configuration)) {
  const auto log = folder_.path() / "log";
  if (geteuid() == 0) run_program({"chown", "postgres", folder_.path().string()}, "/dev/null");
  run_program(command({"initdb", "--pgdata=" + data().string(), "--username=postgres", "--auth=trust",
                       "--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions"}),
              log);
  constexpr int attempts = 10;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    port_ = free_port();
    try {
      start();
      return;
    } catch (const std::runtime_error&) {
      if (attempt + 1 == attempts) throw;
    }
  }
}

PostgresServer::~PostgresServer() {
  if (process_) stop_at_once();
}

void PostgresServer::start() {
  {
    std::ofstream file(data() / "postgresql.conf");
    file << "listen_addresses = '127.0.0.1'\nport = " << port_ << "\nunix_socket_directories = '"
         << folder_.path().string() << "'\nmax_connections = 100\nshared_buffers = 16MB\n";
    for (const auto& line : configuration_) file << line << '\n';
  }
  process_ = std::make_unique<ChildProcess>(command({"postgres", "-D", data().string()}), folder_.path() / "log");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (;;) {
    try {
      execute("SELECT 1");
      return;
    } catch (const std::runtime_error&) {
      if (!process_->is_running() || std::chrono::steady_clock::now() > end) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
}

void PostgresServer::stop_at_once() {
  process_->send(SIGQUIT);
  process_->wait();
  process_.reset();
}

void PostgresServer::pause() const { kill(-process_->pid(), SIGSTOP); }
void PostgresServer::resume() const { kill(-process_->pid(), SIGCONT); }

std::string PostgresServer::url(const std::string& options) const {
  return "postgres://postgres@127.0.0.1:" + std::to_string(port_) + "/postgres" + options;
}

std::string PostgresServer::unix_url(const std::string& options) const {
  return "postgres:///postgres?host=" + folder_.path().string() + "&port=" + std::to_string(port_) + "&user=postgres" +
         options;
}

std::string PostgresServer::execute(const std::string& sql, const std::vector<std::string>& values) const {
  const std::unique_ptr<PGconn, void (*)(PGconn*)> connection(PQconnectdb(url().c_str()), PQfinish);
  if (PQstatus(connection.get()) != CONNECTION_OK) throw std::runtime_error(PQerrorMessage(connection.get()));
  PQsetNoticeProcessor(
      connection.get(), [](void*, const char*) {}, nullptr);
  std::vector<const char*> texts;
  for (const auto& value : values) texts.push_back(value.c_str());
  // Without values, several statements at once are possible.
  const std::unique_ptr<PGresult, void (*)(PGresult*)> result(
      values.empty() ? PQexec(connection.get(), sql.c_str())
                     : PQexecParams(connection.get(), sql.c_str(), static_cast<int>(texts.size()), nullptr,
                                    texts.data(), nullptr, nullptr, 0),
      PQclear);
  const auto status = PQresultStatus(result.get());
  if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
    throw std::runtime_error(PQerrorMessage(connection.get()));
  }
  return PQntuples(result.get()) > 0 && PQnfields(result.get()) > 0 ? PQgetvalue(result.get(), 0, 0) : "";
}

}  // namespace syncguard::testing
