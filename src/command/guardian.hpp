// The process between `syncguard run` and the command that it runs. It is the command's parent, holds the deadline of
// the lock, and ends the command's process group when the lock can no longer be relied on, even if syncguard itself is
// stopped or killed.
//
//   syncguard ──socket──▶ guardian ──fork──▶ the command, in a process group of its own
//   renews the lock,      holds the deadline,
//   tells each deadline   kills the group
//
// The guardian does nothing else: no client, no thread, no output.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

namespace syncguard::command {

// A moment as CLOCK_BOOTTIME counts.
using BootTime = std::chrono::nanoseconds;

// What the guardian has to know before there is a lock.
struct Charge {
  std::vector<std::string> command;
  std::string key;
  // How long the command has to end by itself: SIGTERM comes this much earlier than SIGKILL.
  std::chrono::milliseconds kill_after;
  // What the command starts with.
  sigset_t signal_mask;
};

// What the guardian says of the command.
struct Report {
  enum class Kind {
    started,  // group is its process group
    // By value, a signal that stops jobs; syncguard should stop too.
    stopped,
    // Nothing of its group is left. value: what waitpid said of the command.
    ended,
    // value: the errno of exec, or of what had to come before it.
    not_started,
  };
  Kind kind{};
  pid_t group = 0;
  int value = 0;
  // It was told to end, or killed, because the lock could not be relied on any more.
  bool lock_lost = false;
  // It had the terminal when it ended.
  bool had_terminal = false;
};

// The guardian as syncguard sees it. What is sent to one that is gone or stopped is lost, which is safe: it kills at
// the last deadline that it was told, or is dead together with the command. Any thread may send; one receives.
class Guardian {
 public:
  // Forks. Call it before there are threads. Throws std::system_error.
  explicit Guardian(const Charge& charge);
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;
  // Waits for its end. A command that still runs is ended first.
  ~Guardian();

  // Starts the command, once.
  void start(BootTime deadline, const std::string& lock_id, const std::string& fence) const;
  void prolong(BootTime deadline) const;
  // The command's group is killed at once.
  void lock_is_gone() const;
  // To the command's group.
  void forward(int signal) const;
  // After a stop: the command goes on, in the foreground if syncguard is, unless the deadline has passed.
  void go_on() const;

  // Readable when receive() has something to say.
  [[nodiscard]] int descriptor() const noexcept { return socket_; }
  // Nothing if the guardian is gone without a last word: somebody killed it.
  [[nodiscard]] std::optional<Report> receive() const;

 private:
  int socket_;
  pid_t process_;
};

}  // namespace syncguard::command
