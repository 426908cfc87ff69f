// The actions of the subcommands. main.cpp parses their arguments.
#pragma once

#include "command/exit_code.hpp"
#include "command/output.hpp"

#include <syncguard/syncguard.hpp>

#include <chrono>
#include <optional>
#include <stop_token>
#include <string>

namespace syncguard::command {

struct AcquireArguments {
  std::string key;
  std::chrono::milliseconds ttl{30'000};
  // How long to wait; zero makes one attempt.
  std::chrono::milliseconds wait{0};
};

// Tries once, then waits for the given time; WaitOptions::no_timeout waits forever, zero does not wait. Returns nullopt
// if another holder kept the lock. With a finite wait, transient errors are retried; otherwise those of the first
// attempt are thrown at once. Throws LockError(invalid_argument) instead of waiting for the `syncguard run` that this
// process runs in.
std::optional<Lease> wait_for_lock(Locks& locks, const Key& key, AcquireOptions options, std::chrono::milliseconds wait,
                                   const Output& output, const std::stop_token& stop);

// Returns the argument, or a line of standard input if the argument is "-", because other users can see arguments.
// Throws LockError(invalid_argument).
std::string read_lock_id(const std::string& argument);

// Suppresses gRPC's messages on stderr, unless debug output is on or GRPC_VERBOSITY is set. Call it before starting
// threads.
void quiet_grpc(const Output& output);

// The label of the locks that this process holds: USER@HOST/PID and the program, without its arguments, which may be
// secret. Leaves out what makes the label invalid.
std::string default_holder(const std::string& program);

ExitCode acquire(Locks& locks, const AcquireArguments& arguments, const Output& output, const std::stop_token& stop);
ExitCode release(Locks& locks, const std::string& lock_id, const Output& output, std::stop_token stop);
ExitCode extend(Locks& locks, const std::string& lock_id, std::chrono::milliseconds ttl, const Output& output,
                std::stop_token stop);
ExitCode is_locked(Locks& locks, const std::string& key, const Output& output, std::stop_token stop);
ExitCode setup(Locks& locks, const Output& output, std::stop_token stop);
// Prints what an administrator can run instead of setup, without connecting.
ExitCode print_setup(const Locks& locks, const Output& output);
struct CleanupArguments {
  std::chrono::milliseconds older_than{3'600'000};
  bool dry_run = false;
};

ExitCode cleanup(Locks& locks, const CleanupArguments& arguments, const Output& output, const std::stop_token& stop);
ExitCode doctor(Locks& locks, const Output& output, std::stop_token stop);
// Needs no client.
ExitCode backends(const Output& output);

}  // namespace syncguard::command
