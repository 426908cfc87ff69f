// Waits that a signal or another stop request ends.
#pragma once

#include "command/exit_code.hpp"

#include <chrono>
#include <csignal>
#include <initializer_list>
#include <mutex>
#include <stop_token>
#include <thread>

namespace syncguard::command {

// Returns those of the signals that this process does not ignore. Under nohup, for example, it ignores SIGHUP.
sigset_t not_ignored(std::initializer_list<int> signals);

// Ends this process by the signal, as if it had not been caught. A shell script ends on Ctrl-C only if the child that
// it waits for is killed by SIGINT; after a child that returns 130 it continues. Returns only if the system does not
// let signals end this process, such as the first process of a container.
void end_by(int signal);

// Provides a token that is stopped by the first SIGINT, SIGTERM or SIGHUP. The second one ends the process immediately.
// Create it before starting threads: it blocks those signals permanently, and waits for them on its own thread while it
// exists.
class StopOnSignals {
 public:
  StopOnSignals();
  StopOnSignals(const StopOnSignals&) = delete;
  StopOnSignals& operator=(const StopOnSignals&) = delete;
  ~StopOnSignals();

  [[nodiscard]] std::stop_token token() const { return stop_.get_token(); }
  // After pause(), the token is not stopped, and signals stay pending until resume(), or until another reader takes
  // them. Does not need a new thread, which may not be available later.
  void pause();
  void resume();
  // The last signal that stopped a token; zero if none did.
  [[nodiscard]] static int received() noexcept;

 private:
  enum class Mode { reading, paused, ended };

  void read_signals();
  void change_mode(Mode mode);

  std::stop_source stop_;
  // Wakes the thread after a change of the mode.
  int changed_;
  int signals_ = -1;
  std::mutex mutex_;
  Mode mode_ = Mode::reading;
  std::thread thread_;
};

// Sleeps until a stop is requested, or for the given time. Returns whether a stop was requested.
bool sleep_until_stopped(const std::stop_token& stop, std::chrono::steady_clock::duration at_most);
// Without a limit of time.
void sleep_until_stopped(const std::stop_token& stop);

// For commands that run until a signal: ends this process by the signal that stopped a token, see end_by().
ExitCode end_by_received_signal();

}  // namespace syncguard::command
