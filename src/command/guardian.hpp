// The process between `syncguard run` and the command that it runs. It is the command's parent, holds the deadline of
// the lock, and ends the command's process group when the lock can no longer be relied on, even if syncguard itself is
// stopped or killed.
// ARCHITECTURE.md shows the three processes.
//
// The guardian does nothing else: no client, no thread, no output.
#pragma once

#include <syncguard/boot_clock.hpp>

#include <sys/types.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace syncguard::command {

// The configuration of the guardian, known before the lock is acquired.
struct GuardianConfig {
  std::vector<std::string> command;
  std::string key;
  // Grace period between SIGTERM and SIGKILL when the lock is about to expire, or syncguard has exited.
  std::chrono::milliseconds kill_after;
  // How long the command may run, and the grace period after that. Zero: unlimited.
  std::chrono::milliseconds timeout{0};
  std::chrono::milliseconds kill_after_timeout{0};
  // The value of SYNCGUARD_URL for the command; if unset, syncguard's own.
  std::optional<std::string> url{};
  // The signal state with which the command starts.
  sigset_t signal_mask{};
  struct sigaction pipe_action {};
  struct sigaction child_action {};
};

// The guardian's report about the command.
struct Report {
  enum class Kind {
    started,  // group is its process group
    // The command was stopped by the signal in value; syncguard should stop, too.
    stopped,
    // The command's process group is empty. value is the status from waitpid.
    ended,
    // value is the errno of exec, or of a preceding step.
    not_started,
  };
  Kind kind{};
  pid_t group = 0;
  int value = 0;
  // The command was terminated or killed because the lock could no longer be relied on.
  bool lock_lost = false;
  // The command was terminated because it exceeded its timeout.
  bool timed_out = false;
  // The command had the terminal when it ended.
  bool had_terminal = false;
};

// The guardian as syncguard sees it. Requests to a guardian that is stopped or dead may be lost, which is safe: it
// kills the command at the last deadline it received, or has died together with the command. Any thread may send; one
// receives.
class Guardian {
 public:
  // Forks. Call it before starting threads, with SIGCHLD blocked and its default action. Throws std::system_error.
  explicit Guardian(const GuardianConfig& config);
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;
  // Waits until the guardian has ended. A running command is terminated first.
  ~Guardian();

  // Starts the command. Call it once.
  void start(BootClock::time_point deadline, const std::string& lock_id, const std::string& fence) const;
  void extend_deadline(BootClock::time_point deadline) const;
  // Kills the command's group immediately.
  void lock_is_gone() const;
  // Sends the signal to the command's group, unless the service manager has sent it to every process of the service.
  // sender: a process, or no_sender.
  void forward(int signal, pid_t sender) const;
  // If the guardian itself was stopped: resumes it. Call it on each SIGCHLD.
  void continue_if_stopped() const;
  // After a stop: resumes the command, in the foreground if syncguard is, unless the deadline has passed.
  void resume() const;

  // Readable when receive() has a report.
  [[nodiscard]] int descriptor() const noexcept { return socket_; }
  // Returns nullopt if the guardian was killed.
  [[nodiscard]] std::optional<Report> receive() const;

 private:
  int socket_;
  pid_t process_;
};

constexpr pid_t no_sender = -1;

// A request of syncguard to its guardian. Each is one packet between two processes of the same program.
struct GuardianRequest {
  enum class Kind : std::uint8_t { start, extend_deadline, lock_is_gone, forward, resume };
  Kind kind{};
  int signal = 0;
  pid_t sender = 0;           // of the signal; no_sender if the system sent it
  std::int64_t deadline = 0;  // nanoseconds of the BootClock
  // For start: texts that end with a zero byte.
  std::array<char, 32> lock_id{};
  std::array<char, 32> fence{};
};

// The main function of the guardian process (guardian_process.cpp). socket is connected to syncguard, whose process
// group is parent_group.
[[noreturn]] void guard(int socket, pid_t parent_group, const GuardianConfig& config);

}  // namespace syncguard::command
