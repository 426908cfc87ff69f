// Starts a private PostgreSQL, runs a program with its URL as the last argument, and returns what the program returns.
// usage: with_postgres PROGRAM ARGUMENTS...

#include "servers/postgres_server.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s PROGRAM ARGUMENTS...\n", argv[0]);
    return 2;
  }
  try {
    const syncguard::testing::PostgresServer server;
    std::string url = server.url();
    std::vector<char*> arguments(argv + 1, argv + argc);
    arguments.push_back(url.data());
    arguments.push_back(nullptr);
    const pid_t pid = fork();
    if (pid == 0) {
      execv(arguments[0], arguments.data());
      _exit(127);
    }
    int status = 0;
    if (waitpid(pid, &status, 0) != pid) return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
