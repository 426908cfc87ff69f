// The subcommand `serve`: a web page that shows the locks of a store.
#pragma once

#include "command/exit_code.hpp"
#include "command/output.hpp"

#include <syncguard/syncguard.hpp>

#include <chrono>
#include <stop_token>
#include <string>
#include <vector>

namespace syncguard::command {

struct ServeArguments {
  std::string prefix{};
  std::string listen = "127.0.0.1:9465";
  std::vector<std::string> host_names{};
  std::string token_file{};
  std::string certificate_file{};
  std::string key_file{};
  bool insecure = false;
  bool allow_break = false;
  std::chrono::milliseconds interval{1000};
};

// Serves until a signal. Throws LockError(invalid_argument) before any I/O if the arguments would show locks to a
// network without a token, or a token without TLS.
ExitCode serve(Locks& locks, const ServeArguments& arguments, const Output& output, const std::stop_token& stop);

}  // namespace syncguard::command
