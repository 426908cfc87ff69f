// Signals that end the waiting.
#pragma once

#include <csignal>
#include <initializer_list>
#include <stop_token>
#include <thread>

namespace syncguard::command {

// Those of the signals that this process was not started to ignore, as by nohup.
sigset_t not_ignored(std::initializer_list<int> signals);

// Ends this process by the signal, as if nothing had caught it. A script is ended by Ctrl-C only if what it waits for
// dies of it: after a child that merely returns 130 it goes on. Returns where the system does not let signals end us,
// as for the first process of a container.
void end_by(int signal);

// Has a token that is stopped by SIGINT, SIGTERM or SIGHUP. Make it before other threads start: it blocks those
// signals, for good, and waits for them on a thread of its own for as long as it exists.
class StopOnSignals {
 public:
  StopOnSignals();
  StopOnSignals(const StopOnSignals&) = delete;
  StopOnSignals& operator=(const StopOnSignals&) = delete;
  ~StopOnSignals();

  [[nodiscard]] std::stop_token token() const { return stop_.get_token(); }
  // Which signal ended the waiting of this process; zero if none has.
  [[nodiscard]] static int received() noexcept;

 private:
  std::stop_source stop_;
  int end_;
  std::thread thread_;
};

}  // namespace syncguard::command
