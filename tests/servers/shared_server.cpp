// Starts and stops the server that the cases of a test program share. ctest runs it as the setup and the cleanup of a
// fixture. Usage: shared_server start|stop postgres|firestore FOLDER
//
// The server runs in a process of its own, which ends when it is stopped or when ctest ends, even if ctest is killed.

#include "servers/shared_server.hpp"

#if SYNCGUARD_HAS_POSTGRES
#include "servers/postgres_server.hpp"
#endif
#if SYNCGUARD_HAS_FIRESTORE
#include "servers/firestore_emulator.hpp"
#endif

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace syncguard::testing {
namespace {

using Properties = std::map<std::string, std::string>;

// Keeps the server running while it exists.
struct Server {
  std::shared_ptr<void> keeps_running;
  Properties properties;
  // Called several times a second, if set.
  std::function<void()> maintain{};
};

Server start_server(const std::string& name) {
#if SYNCGUARD_HAS_POSTGRES
  if (name == "postgres") {
    struct Postgres {
      // Enough for the idle connections of the pooler to several databases.
      PostgresServer server{{.tls = true, .configuration = {"max_connections = 500"}}};
      PgBouncer pooler{server};
    };
    const auto postgres = std::make_shared<Postgres>();
    return {postgres,
            {{"folder", postgres->server.file("").string()},
             {"port", std::to_string(postgres->server.port())},
             {"pooler_port", std::to_string(postgres->pooler.port())}},
            [postgres = postgres.get()] { postgres->pooler.restart_if_ended(postgres->server); }};
  }
#endif
#if SYNCGUARD_HAS_FIRESTORE
  if (name == "firestore") {
    const auto emulator = std::make_shared<FirestoreEmulator>();
    return {emulator, {{"address", emulator->address()}}};
  }
#endif
  throw std::runtime_error("'" + name + "' is unknown, or was not built");
}

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

void write_file(const std::filesystem::path& path, const Properties& properties) {
  const auto temporary = path.string() + ".new";
  {
    std::ofstream file(temporary);
    for (const auto& [key, value] : properties) file << key << ' ' << value << '\n';
    if (!file.flush()) throw std::runtime_error("cannot write " + temporary);
  }
  std::filesystem::rename(temporary, path);
}

// Runs the server until SIGTERM, or until the process that the descriptor refers to has ended. Calls ready() once it
// has started.
template <typename Ready>
void serve(const std::string& name, const std::filesystem::path& file, int runner, const Ready& ready) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const int terminated = signalfd(-1, &signals, SFD_CLOEXEC);
  if (terminated < 0) fail("signalfd");
  auto server = start_server(name);
  server.properties["process"] = std::to_string(getpid());
  write_file(file, server.properties);
  ready();
  std::array<pollfd, 2> ends{
      {{.fd = runner, .events = POLLIN, .revents = 0}, {.fd = terminated, .events = POLLIN, .revents = 0}}};
  constexpr std::chrono::milliseconds interval(100);
  for (;;) {
    const int ended = poll(ends.data(), ends.size(), server.maintain ? static_cast<int>(interval.count()) : -1);
    if (ended > 0 || (ended < 0 && errno != EINTR)) break;
    if (server.maintain) server.maintain();
  }
  server.keeps_running.reset();
  // Files that test programs have made, such as NAME-PID.database-0.
  for (const auto& entry : std::filesystem::directory_iterator(file.parent_path())) {
    if (entry.path().filename().string().starts_with(file.filename().string() + ".")) {
      std::filesystem::remove(entry.path());
    }
  }
  // Last, because stop() waits for it.
  std::filesystem::remove(file);
}

int start(const std::string& name, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const auto file = shared_server_file(folder, name);
  std::filesystem::remove(file);
  const int runner = static_cast<int>(syscall(SYS_pidfd_open, getppid(), 0));
  if (runner < 0) fail("pidfd_open");
  std::array<int, 2> report{};
  if (pipe2(report.data(), O_CLOEXEC) != 0) fail("pipe2");
  const pid_t pid = fork();
  if (pid < 0) fail("fork");
  if (pid == 0) {
    setsid();
    // ctest waits until no process has the output of the test open.
    const int nowhere = open("/dev/null", O_RDWR);
    for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nowhere, standard);
    ::close(report[0]);
    const auto tell = [&](const std::string& message) {
      [[maybe_unused]] const auto written = write(report[1], message.data(), message.size());
      ::close(report[1]);
    };
    try {
      serve(name, file, runner, [&] { tell("ready"); });
      return 0;
    } catch (const std::exception& error) {
      tell(error.what());
      return 1;
    }
  }
  ::close(report[1]);
  std::string message;
  std::array<char, 4096> buffer{};
  for (;;) {
    const auto size = read(report[0], buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    message.append(buffer.data(), static_cast<std::size_t>(size));
  }
  if (message == "ready") return 0;
  throw std::runtime_error("the server does not start: " + message);
}

int stop(const std::string& name, const std::filesystem::path& folder) {
  const auto file = shared_server_file(folder, name);
  // ctest also runs the cleanup if the setup has failed.
  if (!std::filesystem::exists(file)) return 0;
  const auto process = static_cast<pid_t>(std::stol(read_shared_server(file).properties.at("process")));
  // ctest limits the time. Removing thousands of files takes long on a busy disk.
  while (kill(process, SIGTERM) == 0) {
    if (!std::filesystem::exists(file)) return 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  // The process removes the file before it ends, unless it crashes.
  if (!std::filesystem::remove(file)) return 0;
  throw std::runtime_error("the process of the shared server has crashed");
}

}  // namespace
}  // namespace syncguard::testing

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  if (argc != 4 || (arguments[1] != "start" && arguments[1] != "stop")) {
    std::fprintf(stderr, "usage: %s start|stop postgres|firestore FOLDER\n", argv[0]);
    return 2;
  }
  try {
    return arguments[1] == "start" ? syncguard::testing::start(arguments[2], arguments[3])
                                   : syncguard::testing::stop(arguments[2], arguments[3]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "shared_server: %s\n", error.what());
    return 1;
  }
}
