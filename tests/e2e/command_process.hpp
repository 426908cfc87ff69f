// Runs the syncguard command as a child process.
#pragma once

#include "support/eventually.hpp"
#include "support/fork_when_idle.hpp"
#include "support/temporary_folder.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace syncguard::testing {

inline std::string text_of_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Called in a new process. The tests may have been started with ignored signals, as a shell does for background jobs.
inline void use_default_signals() {
  for (const int number : {SIGINT, SIGQUIT, SIGHUP, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGPIPE})
    signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Whether the process has blocked SIGTERM, as syncguard does to wait for signals.
inline bool waits_for_signals(pid_t process) {
  std::istringstream status(text_of_file("/proc/" + std::to_string(process) + "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("SigBlk:")) return (std::stoull(line.substr(7), nullptr, 16) >> (SIGTERM - 1) & 1U) != 0;
  }
  return false;
}

struct Outcome {
  int exit_code = -1;  // 128 plus the signal's number if a signal killed it
  std::string out;
  std::string err;

  [[nodiscard]] nlohmann::json json() const { return nlohmann::json::parse(out); }
};

// One run of the command. The destructor kills it.
class CommandProcess {
 public:
  // The URL is passed in the environment, as in a cron job.
  CommandProcess(const std::string& url, std::vector<std::string> arguments,
                 const std::string& program = SYNCGUARD_COMMAND) {
    arguments.insert(arguments.begin(), program);
    const auto out = folder_.path() / "out";
    const auto err = folder_.path() / "err";
    const pid_t parent = getpid();
    pid_ = fork_when_idle();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(96);
    // Its own process group, as in a shell, so that a test can signal all of its processes.
    setpgid(0, 0);
    use_default_signals();
    setenv("SYNCGUARD_URL", url.c_str(), 1);
    redirect("/dev/null", O_RDONLY, STDIN_FILENO);
    redirect(out.c_str(), O_WRONLY | O_CREAT, STDOUT_FILENO);
    redirect(err.c_str(), O_WRONLY | O_CREAT, STDERR_FILENO);
    std::vector<char*> pointers;
    for (auto& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    execv(pointers[0], pointers.data());
    _exit(98);
  }
  CommandProcess(const CommandProcess&) = delete;
  CommandProcess& operator=(const CommandProcess&) = delete;
  ~CommandProcess() {
    if (ended_) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  [[nodiscard]] pid_t pid() const { return pid_; }
  void send(int signal) const { kill(pid_, signal); }
  // Returns when the process has stopped.
  void stop() const {
    kill(pid_, SIGSTOP);
    waitpid(pid_, nullptr, WUNTRACED);
  }
  [[nodiscard]] std::string out() const { return text_of_file(folder_.path() / "out"); }
  [[nodiscard]] std::string err() const { return text_of_file(folder_.path() / "err"); }

  bool has_ended() {
    if (!ended_ && waitpid(pid_, &status_, WNOHANG) == pid_) ended_ = true;
    return ended_;
  }
  // The signal that killed the process, or zero. Call finish() first.
  [[nodiscard]] int killed_by() const { return WIFSIGNALED(status_) ? WTERMSIG(status_) : 0; }
  // Waits until the process has ended.
  Outcome finish() {
    if (!ended_) waitpid(pid_, &status_, 0);
    ended_ = true;
    return {WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_), out(), err()};
  }

 private:
  static void redirect(const char* path, int flags, int descriptor) {
    const int file = open(path, flags | O_CLOEXEC, 0600);
    if (file < 0 || dup2(file, descriptor) < 0) _exit(99);
  }

  const TemporaryFolder folder_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

}  // namespace syncguard::testing
