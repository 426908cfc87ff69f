#include "os/password.hpp"

#include "os/descriptor.hpp"

#include <syncguard/error.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <exception>
#include <optional>

namespace syncguard::os {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t max_password_bytes = std::size_t{64} * 1024;
constexpr std::chrono::seconds command_timeout{30};

[[noreturn]] void fail(const std::string& message) { throw LockError(ErrorCode::service_unavailable, message); }

// A shell in its own process group, with its output in a pipe.
class Command {
 public:
  explicit Command(const std::string& command) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) fail("cannot run the password command: no pipe");
    const Descriptor input(ends[1]);
    output_ = Descriptor(ends[0]);
    // Only our end. The command's end stays blocking, as commands expect.
    if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) fail("cannot run the password command: no pipe");

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, input.get(), STDOUT_FILENO);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    // The library's threads block signals, and a program may ignore some: the command starts with no signal blocked or
    // ignored.
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    std::string shell = "sh";
    std::string option = "-c";
    std::string text = command;
    const std::array<char*, 4> arguments = {shell.data(), option.data(), text.data(), nullptr};
    const int error = posix_spawn(&process_, "/bin/sh", &actions, &attributes, arguments.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) fail("cannot run the password command: cannot start a shell");
  }
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  ~Command() {
    // If the application ignores SIGCHLD or waits for every child, the process may be gone, and its id may belong to
    // another process group.
    if (!running_ || !is_ours()) return;
    kill(-process_, SIGKILL);
    int ignored = 0;
    while (waitpid(process_, &ignored, 0) < 0 && errno == EINTR) {
    }
  }

  // Returns the output of the shell up to its exit. Does not wait for the pipe to close: background children of the
  // shell, such as agents, may keep it open.
  std::string read_all(steady_clock::time_point deadline) const {
    std::string output;
    for (;;) {
      const bool ended = has_ended();
      // Read after has_ended(), so that everything printed before the exit is already in the pipe.
      if (read_available(output) || ended) return output;
      const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
      if (left <= milliseconds(0)) fail("the password command did not finish within 30 s");
      constexpr milliseconds poll_interval{10};
      pollfd readable{.fd = output_.get(), .events = POLLIN, .revents = 0};
      (void)poll(&readable, 1, static_cast<int>(std::min(left, poll_interval).count()));
    }
  }

  void expect_success(steady_clock::time_point deadline) {
    for (;;) {
      int status = 0;
      const auto ended = waitpid(process_, &status, WNOHANG);
      if (ended < 0 && errno == EINTR) continue;
      // If the application ignores SIGCHLD or waits for every child, the exit status is lost. The output alone decides
      // then.
      if (ended < 0) break;
      if (ended == process_) {
        running_ = false;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
        fail(WIFEXITED(status) ? "the password command failed with exit status " + std::to_string(WEXITSTATUS(status))
                               : "the password command was killed by signal " + std::to_string(WTERMSIG(status)));
      }
      if (steady_clock::now() >= deadline) fail("the password command did not finish within 30 s");
      constexpr milliseconds pause{1};
      poll(nullptr, 0, static_cast<int>(pause.count()));
    }
    running_ = false;
  }

 private:
  // Does not reap the process, so that its id cannot be reused.
  [[nodiscard]] bool is_ours() const { return query_exit().has_value(); }
  [[nodiscard]] bool has_ended() const {
    const auto ended = query_exit();
    return !ended || *ended;
  }
  // Whether the shell has ended; nullopt if it is no longer a child of this process.
  [[nodiscard]] std::optional<bool> query_exit() const {
    siginfo_t end{};
    if (waitid(P_PID, static_cast<id_t>(process_), &end, WEXITED | WNOHANG | WNOWAIT) != 0) return std::nullopt;
    return end.si_pid != 0;
  }

  // Returns true at the end of the output.
  bool read_available(std::string& output) const {
    for (;;) {
      std::array<char, 4096> buffer{};
      const auto size = read(output_.get(), buffer.data(), buffer.size());
      if (size == 0) return true;
      if (size < 0 && errno == EINTR) continue;
      if (size < 0 && errno == EAGAIN) return false;
      if (size < 0) fail("cannot read the output of the password command");
      output.append(buffer.data(), static_cast<std::size_t>(size));
      if (output.size() > max_password_bytes) fail("the password command printed more than 64 KiB");
    }
  }

  Descriptor output_;
  pid_t process_ = -1;
  bool running_ = true;
};

}  // namespace

std::string ask_for_password(const PasswordCallback& callback) {
  std::string password;
  try {
    password = callback();
  } catch (const LockError&) {
    throw;
  } catch (...) {
    throw LockError(ErrorCode::service_unavailable, "the password callback failed", Effect::none,
                    {.cause = std::current_exception()});
  }
  if (password.empty()) fail("the password callback or command returned an empty password");
  if (password.size() > max_password_bytes) fail("the password callback returned more than 64 KiB");
  if (password.find('\0') != std::string::npos) fail("the password callback or command returned a NUL character");
  return password;
}

PasswordCallback password_from_command(const std::string& command) {
  if (command.empty()) throw LockError(ErrorCode::invalid_argument, "password_command must not be empty");
  return [command] {
    const auto deadline = steady_clock::now() + command_timeout;
    Command running(command);
    auto output = running.read_all(deadline);
    running.expect_success(deadline);
    if (output.ends_with('\n')) output.pop_back();
    if (output.ends_with('\r')) output.pop_back();
    return output;
  };
}

}  // namespace syncguard::os
