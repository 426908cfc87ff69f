// `syncguard run`: a command that runs only while a lock is held.
#pragma once

#include "command/exit_code.hpp"
#include "command/output.hpp"

#include <syncguard/syncguard.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace syncguard::command {

struct RunArguments {
  std::vector<std::string> command;
  std::optional<std::string> key;  // without it, the command's name
  std::chrono::milliseconds ttl{30'000};
  // How long to wait for the lock; WaitOptions::no_timeout for as long as it takes, zero tries once.
  std::chrono::milliseconds wait = WaitOptions::no_timeout;
  std::chrono::milliseconds kill_after{5'000};
  int conflict_exit_code = exit_locked;
  int lost_exit_code = exit_lost;
};

// Returns what the shell is to be told: the command's own exit code, 128 and the signal's number if one killed it, 126
// or 127 if it could not be started, or one of the two above. Does not return where SIGINT or SIGQUIT killed the
// command: it dies of the same. Throws LockError. Call it before there are threads.
int run(const std::string& url, const ClientOptions& options, const RunArguments& arguments, const Output& output);

}  // namespace syncguard::command
