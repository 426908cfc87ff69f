// For examples and benchmarks: starts a private server, runs a program, stops the server and returns the program's exit
// code. Each argument {} of the program is replaced by the server's URL, and {far} by a URL that leads to the same
// server with a delay of 80 ms in each direction (Redis and PostgreSQL). Usage: with_server
// sqlite|redis|postgres|firestore PROGRAM [ARGUMENTS...]

#include "servers/counting_proxy.hpp"
#include "support/temporary_folder.hpp"

#if SYNCGUARD_HAS_REDIS
#include "servers/redis_server.hpp"
#endif
#if SYNCGUARD_HAS_POSTGRES
#include "servers/postgres_server.hpp"
#endif
#if SYNCGUARD_HAS_FIRESTORE
#include "servers/firestore_emulator.hpp"
#endif

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace syncguard::testing {
namespace {

constexpr std::chrono::milliseconds delay_of_far_url{80};

int run(std::vector<std::string> command, const std::string& url, const std::string& far_url = "") {
  std::vector<char*> arguments;
  for (auto& argument : command) {
    if (argument == "{}") argument = url;
    if (argument == "{far}") argument = far_url;
    arguments.push_back(argument.data());
  }
  arguments.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == -1) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid == 0) {
    execv(arguments[0], arguments.data());
    std::perror(arguments[0]);
    _exit(127);
  }
  // Ctrl-C ends the program; this process then stops the server and removes its files.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_IGN);
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) throw std::system_error(errno, std::generic_category(), "waitpid");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int run_with_server(const std::string& name, const std::vector<std::string>& command) {
  if (name == "sqlite") {
    const TemporaryFolder folder;
    // With hundreds of requests in flight, the last one waits for the fsyncs of all others.
    return run(command, "sqlite:" + (folder.path() / "locks.db").string() + "?operation_timeout=60s");
  }
#if SYNCGUARD_HAS_REDIS
  if (name == "redis") {
    const RedisServer server;
    const CountingProxy proxy(server.port(), delay_of_far_url);
    return run(command, server.plain_url(), "redis://127.0.0.1:" + std::to_string(proxy.port()));
  }
#endif
#if SYNCGUARD_HAS_POSTGRES
  if (name == "postgres") {
    // As durable as a server in production, and with a connection for each process of a benchmark.
    const PostgresServer server({.configuration = {"fsync = on", "max_connections = 300", "shared_buffers = 128MB"}});
    const CountingProxy proxy(server.port(), delay_of_far_url);
    return run(command, server.unix_url(),
               "postgres://postgres@127.0.0.1:" + std::to_string(proxy.port()) + "/postgres");
  }
#endif
#if SYNCGUARD_HAS_FIRESTORE
  if (name == "firestore") {
    const FirestoreEmulator emulator;
    // On a busy machine, Java may take long for its first replies.
    return run(command, emulator.url("bench", "&operation_timeout=60s"));
  }
#endif
  throw std::runtime_error("'" + name + "' is unknown, or was not built");
}

}  // namespace
}  // namespace syncguard::testing

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s sqlite|redis|postgres|firestore PROGRAM [ARGUMENTS...]\n", argv[0]);
    return 2;
  }
  try {
    return syncguard::testing::run_with_server(arguments[1], {arguments.begin() + 2, arguments.end()});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "with_server: %s\n", error.what());
    return 1;
  }
}
