#include "servers/postgres_server.hpp"

#include "servers/certificates.hpp"
#include "support/eventually.hpp"

#include <libpq-fe.h>
#include <signal.h>
#include <sys/shm.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace syncguard::testing {
namespace {

// The folder of the server's programs, which is not in Debian's search path.
std::filesystem::path programs() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> answer(popen("pg_config --bindir", "r"), pclose);
  std::array<char, 1024> line{};
  if (!answer || std::fgets(line.data(), static_cast<int>(line.size()), answer.get()) == nullptr) {
    throw std::runtime_error("pg_config does not print the folder of PostgreSQL");
  }
  std::string folder(line.data());
  while (folder.ends_with('\n')) folder.pop_back();
  return folder;
}

// Drops root's privileges, because neither PostgreSQL nor PgBouncer runs as root.
std::vector<std::string> as_other_user(const std::vector<std::string>& words) {
  if (geteuid() != 0) return words;
  std::vector<std::string> as_other = {
      "setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups",
      // Otherwise changing the user clears this setting, and the server would outlive a killed test.
      "--pdeathsig=keep"};
  as_other.insert(as_other.end(), words.begin(), words.end());
  return as_other;
}

void chown_to_other_user(const std::filesystem::path& folder) {
  if (geteuid() == 0) run_program({"chown", "-R", "postgres", folder.string()}, "/dev/null");
}

}  // namespace

PostgresServer::PostgresServer(Options options) : options_(std::move(options)) {
  if (options_.tls) make_certificates(folder_.path());
  chown_to_other_user(folder_.path());
  make_data();
  start_on_free_port([this](int port) {
    port_ = port;
    start();
  });
}

void PostgresServer::make_data() const {
  const auto log = folder_.path() / "log";
  if (options_.primary == nullptr) {
    run_program(as_other_user({(programs() / "initdb").string(), "--pgdata=" + data().string(), "--username=postgres",
                               "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions"}),
                log);
    return;
  }
  run_program(as_other_user({(programs() / "pg_basebackup").string(), "--pgdata=" + data().string(), "--host=127.0.0.1",
                             "--port=" + std::to_string(options_.primary->port()), "--username=postgres",
                             "--write-recovery-conf", "--checkpoint=fast", "--no-sync"}),
              log);
}

PostgresServer::~PostgresServer() {
  if (!process_) return;
  // A test may have failed while the server was paused.
  resume();
  stop_at_once();
}

void PostgresServer::start() {
  {
    std::ofstream file(data() / "postgresql.conf");
    file << "listen_addresses = '127.0.0.1'\nport = " << port_ << "\nunix_socket_directories = '"
         << folder_.path().string()
         << "'\nmax_connections = 100\nshared_buffers = 16MB\n"
         // The tests need no protection against power failures, and a sync on a busy disk may take longer than their
         // timeouts.
         << "fsync = off\n"
         // In the server's folder, where a server that is killed may leave it behind.
         << "dynamic_shared_memory_type = mmap\n";
    if (options_.tls) {
      file << "ssl = on\nssl_cert_file = '" << (folder_.path() / "server.crt").string() << "'\nssl_key_file = '"
           << (folder_.path() / "server.key").string() << "'\n";
    }
    for (const auto& line : options_.configuration) file << line << '\n';
  }
  process_ = std::make_unique<ChildProcess>(as_other_user({(programs() / "postgres").string(), "-D", data().string()}),
                                            folder_.path() / "log");
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

void PostgresServer::kill() {
  // None of them may notice that another one is gone.
  pause();
  run_program({"pkill", "-KILL", "-P", std::to_string(process_->pid())}, "/dev/null");
  process_->send(SIGKILL);
  process_->wait();
  process_.reset();
  // The next start would remove the shared memory, but there may be none. Its id is the last word of this line.
  std::ifstream file(data() / "postmaster.pid");
  constexpr int line_of_shared_memory = 7;
  std::string line;
  for (int i = 0; i < line_of_shared_memory; ++i) std::getline(file, line);
  shmctl(std::stoi(line.substr(line.rfind(' ') + 1)), IPC_RMID, nullptr);
}

void PostgresServer::stop_fast() {
  process_->send(SIGINT);
  process_->wait();
  process_.reset();
}

// Pauses all processes of the server.
void PostgresServer::pause() const {
  process_->pause();
  const auto parent = std::to_string(process_->pid());
  run_program({"pkill", "-STOP", "-P", parent}, "/dev/null");
  std::ifstream children("/proc/" + parent + "/task/" + parent + "/children");
  for (std::string child; children >> child;) {
    const auto has_stopped = [&] {
      std::ifstream file("/proc/" + child + "/stat");
      std::string line;
      std::getline(file, line);
      return line.find(") T ") != std::string::npos || line.find(") Z ") != std::string::npos || line.empty();
    };
    if (!eventually(has_stopped)) throw std::runtime_error("a process of PostgreSQL does not stop");
  }
}
void PostgresServer::resume() const {
  run_program({"pkill", "-CONT", "-P", std::to_string(process_->pid())}, "/dev/null");
  process_->resume();
}

void PostgresServer::wait_for_replay_on(const PostgresServer& standby) const {
  // What is inserted will be written, such as a release, which is committed asynchronously.
  const auto written = execute("SELECT pg_current_wal_insert_lsn()");
  const auto has_replayed = [&] {
    return standby.execute("SELECT pg_last_wal_replay_lsn() >= '" + written + "'::pg_lsn") == "t";
  };
  if (!eventually(has_replayed)) throw std::runtime_error("the standby does not replay");
}

std::string PostgresServer::url_of(const std::string& user, const std::string& options) const {
  return "postgres://" + user + "@127.0.0.1:" + std::to_string(port_) + "/postgres" + options;
}

std::string PostgresServer::url(const std::string& options) const { return url_of("postgres", options); }

std::string PostgresServer::unix_url(const std::string& options) const {
  return "postgres:///postgres?host=" + folder_.path().string() + "&port=" + std::to_string(port_) + "&user=postgres" +
         options;
}

std::string execute_sql(const std::string& url, const std::string& sql, const std::vector<std::string>& values) {
  const std::unique_ptr<PGconn, void (*)(PGconn*)> connection(PQconnectdb(url.c_str()), PQfinish);
  if (PQstatus(connection.get()) != CONNECTION_OK) throw std::runtime_error(PQerrorMessage(connection.get()));
  PQsetNoticeProcessor(
      connection.get(), [](void*, const char*) {}, nullptr);
  std::vector<const char*> texts;
  for (const auto& value : values) texts.push_back(value.c_str());
  // PQexec allows several statements, but no values.
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

PgBouncer::PgBouncer(const PostgresServer& server, std::string configuration)
    : configuration_(std::move(configuration)) {
  start_on_free_port([&](int port) { start(server, port); });
}

void PgBouncer::start(const PostgresServer& server, int port) {
  port_ = port;
  std::ofstream(folder_.path() / "pgbouncer.ini")
      << "[databases]\n* = host=127.0.0.1 user=postgres port=" << server.port()
      << "\n[pgbouncer]\npool_mode = transaction\nauth_type = any\nlisten_addr = 127.0.0.1\nlisten_port = " << port_
      << "\nunix_socket_dir =\nmax_client_conn = 500\ndefault_pool_size = 20\n"
      << configuration_;
  chown_to_other_user(folder_.path());
  process_ = std::make_unique<ChildProcess>(as_other_user({"pgbouncer", (folder_.path() / "pgbouncer.ini").string()}),
                                            folder_.path() / "log");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (PQping(url().c_str()) != PQPING_OK) {
    if (!process_->is_running() || std::chrono::steady_clock::now() > end) {
      throw std::runtime_error("pgbouncer does not start");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void PgBouncer::restart_if_ended(const PostgresServer& server) {
  if (!process_->is_running()) start(server, port_);
}

std::string PgBouncer::url(const std::string& options) const {
  return "postgres://postgres@127.0.0.1:" + std::to_string(port_) + "/postgres" + options;
}

}  // namespace syncguard::testing
