// The exit codes of the command. Scripts depend on them, and --help and the man page list them: never change a meaning.
#pragma once

#include <syncguard/error.hpp>

namespace syncguard::command {

enum ExitCode : int {
  exit_yes = 0,
  exit_no = 1,              // not released, not extended, not locked
  exit_usage = 2,           // and InvalidArgument
  exit_unavailable = 69,    // ServiceUnavailable, NetworkTimeout, RateLimited
  exit_internal = 70,       // Internal
  exit_locked = 75,         // locked, AcquisitionTimeout
  exit_not_permitted = 77,  // AuthFailed
  exit_lost = 79,           // LockLost; run: the lock was lost before it was released
  exit_timed_out = 124,     // run: the command ran for longer than --timeout; like timeout(1)
  exit_not_executable = 126,
  exit_not_found = 127,
  exit_interrupted = 130,  // Ctrl-C ended the wait; for another signal, 128 plus its number
};

inline ExitCode exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return exit_usage;
    case ErrorCode::service_unavailable:
    case ErrorCode::network_timeout:
    case ErrorCode::rate_limited:
      return exit_unavailable;
    case ErrorCode::acquisition_timeout:
      return exit_locked;
    case ErrorCode::auth_failed:
      return exit_not_permitted;
    case ErrorCode::aborted:
      return exit_interrupted;
    case ErrorCode::lock_lost:
      return exit_lost;
    case ErrorCode::internal:
      return exit_internal;
  }
  return exit_internal;
}

}  // namespace syncguard::command
