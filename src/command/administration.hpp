// The subcommands with which operators see and change locks of other holders.
#pragma once

#include "command/exit_code.hpp"
#include "command/output.hpp"

#include <syncguard/syncguard.hpp>

#include <optional>
#include <stop_token>
#include <string>

namespace syncguard::command {

struct StatusArguments {
  // Exactly one of the two is set.
  std::optional<std::string> key{};
  std::optional<std::string> lock_id{};
  bool raw = false;
};

struct ListArguments {
  std::string prefix{};
  // Shows the list again and again, until a signal.
  bool watch = false;
};

struct BreakArguments {
  std::string key{};
  // If unset: the fence of the lock that is there.
  std::optional<Fence> fence{};
  // Does not ask.
  bool yes = false;
};

struct FenceArguments {
  std::string key{};
  std::optional<Fence> raise_to{};
};

// Reads a fence with or without leading zeros. Throws LockError(invalid_argument).
Fence parse_fence(const std::string& text);

ExitCode status(const Admin& admin, const StatusArguments& arguments, const Output& output,
                const std::stop_token& stop);
ExitCode list(const Admin& admin, const ListArguments& arguments, const Output& output, const std::stop_token& stop);
ExitCode watch(const Admin& admin, const Key& key, const Output& output, const std::stop_token& stop);
ExitCode break_lock(const Admin& admin, const BreakArguments& arguments, const Output& output,
                    const std::stop_token& stop);
ExitCode fence(const Admin& admin, const FenceArguments& arguments, const Output& output, const std::stop_token& stop);

}  // namespace syncguard::command
