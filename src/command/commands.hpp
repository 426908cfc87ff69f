// What each command does, apart from reading its arguments.
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
  // How long to wait; zero tries once.
  std::chrono::milliseconds wait{0};
};

struct StatusArguments {
  // One of the two.
  std::optional<std::string> key{};
  std::optional<std::string> lock_id{};
  bool raw = false;
};

// Tries once, and then waits, for so long; WaitOptions::no_timeout is for ever, zero does not wait. Nothing if somebody
// else kept the lock. What the first attempt throws is not ridden out: a lock is waited for, not a server.
std::optional<Lease> wait_for_lock(Locks& locks, const Key& key, AcquireOptions options, std::chrono::milliseconds wait,
                                   const Output& output, const std::stop_token& stop);

ExitCode acquire(Locks& locks, const AcquireArguments& arguments, const Output& output, const std::stop_token& stop);
ExitCode release(Locks& locks, const std::string& lock_id, const Output& output, std::stop_token stop);
ExitCode extend(Locks& locks, const std::string& lock_id, std::chrono::milliseconds ttl, const Output& output,
                std::stop_token stop);
ExitCode status(Locks& locks, const StatusArguments& arguments, const Output& output, std::stop_token stop);
ExitCode is_locked(Locks& locks, const std::string& key, const Output& output, std::stop_token stop);
ExitCode setup(Locks& locks, const Output& output, std::stop_token stop);
ExitCode doctor(Locks& locks, const Output& output, std::stop_token stop);
// Needs no client.
ExitCode backends(const Output& output);

}  // namespace syncguard::command
