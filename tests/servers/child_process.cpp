#include "servers/child_process.hpp"

#include "servers/loopback.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace syncguard::testing {
namespace {

pid_t start(const std::vector<std::string>& command, const std::filesystem::path& output) {
  std::vector<char*> arguments;
  for (const auto& word : command) arguments.push_back(const_cast<char*>(word.c_str()));  // NOLINT: exec's signature
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("fork failed");
  if (pid > 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int file = open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  dup2(file, STDOUT_FILENO);
  dup2(file, STDERR_FILENO);
  execvp(arguments[0], arguments.data());
  _exit(127);
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command, const std::filesystem::path& output)
    : pid_(start(command, output)) {}

ChildProcess::~ChildProcess() {
  if (ended_) return;
  send(SIGKILL);
  wait();
}

bool ChildProcess::is_running() {
  if (!ended_) ended_ = waitpid(pid_, nullptr, WNOHANG) == pid_;
  return !ended_;
}

void ChildProcess::send(int signal) const { kill(pid_, signal); }

void ChildProcess::pause() const {
  send(SIGSTOP);
  // If the process ends instead, WNOWAIT leaves its exit status for wait().
  siginfo_t change{};
  waitid(P_PID, static_cast<id_t>(pid_), &change, WSTOPPED | WEXITED | WNOWAIT);
}

void ChildProcess::resume() const { send(SIGCONT); }

void ChildProcess::wait() {
  if (!ended_) waitpid(pid_, nullptr, 0);
  ended_ = true;
}

void run_program(const std::vector<std::string>& command, const std::filesystem::path& output) {
  int status = 0;
  waitpid(start(command, output), &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  std::ostringstream said;
  said << std::ifstream(output).rdbuf();
  throw std::runtime_error(command.front() + " failed: " + said.str());
}

void start_on_free_port(const std::function<void(int port)>& start) {
  constexpr int attempts = 10;
  for (int attempt = 1;; ++attempt) {
    // The temporary socket is closed at the end of this statement, which frees its port for the server.
    const int port = LoopbackSocket().port();
    try {
      return start(port);
    } catch (const std::runtime_error&) {
      if (attempt == attempts) throw;
    }
  }
}

}  // namespace syncguard::testing
