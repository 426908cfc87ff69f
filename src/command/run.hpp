// `syncguard run`: a command that runs only while a lock is held.
#pragma once

#include "command/exit_code.hpp"
#include "command/output.hpp"

#include <syncguard/syncguard.hpp>

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

namespace syncguard::command {

struct RunArguments {
  std::vector<std::string> command;
  std::optional<std::string> key;  // without it, default_key()
  std::chrono::milliseconds ttl{30'000};
  // How long to wait for the lock; WaitOptions::no_timeout waits forever, zero makes one attempt.
  std::chrono::milliseconds wait = WaitOptions::no_timeout;
  std::chrono::milliseconds kill_after{5'000};
  // The minimum time to hold the lock, even if the command ends sooner.
  std::chrono::milliseconds at_least{0};
  // How long the command may run; zero means forever.
  std::chrono::milliseconds timeout{0};
  int conflict_exit_code = exit_locked;
  int lost_exit_code = exit_lost;
  // The value of SYNCGUARD_URL for the command; if unset, the value in this process's environment.
  std::optional<std::string> url_of_command{};
  // The action of SIGPIPE with which this process was started.
  struct sigaction pipe_action {};
};

// The name of the command without its folder.
std::string default_key(const std::vector<std::string>& command);

// Returns the exit code: the command's own, 128 plus the signal number if a signal killed it, 126 or 127 if it could
// not be started, 124 if it exceeded the timeout, or one of the two exit codes above. If SIGINT, SIGQUIT, SIGTERM or
// SIGHUP ended the command, this process ends by the same signal and run does not return. Throws LockError. Call it
// before starting threads.
int run(const std::string& url, const ClientOptions& options, const RunArguments& arguments, const Output& output);

}  // namespace syncguard::command
