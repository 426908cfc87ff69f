// Signals that end the waiting.
#pragma once

#include <csignal>
#include <initializer_list>
#include <stop_token>
#include <thread>

namespace syncguard::command {

// Those of the signals that this process was not started to ignore, as by nohup.
sigset_t not_ignored(std::initializer_list<int> signals);

// Has a token that is stopped by SIGINT, SIGTERM or SIGHUP. Make it before other threads start: it blocks those
// signals, for good, and waits for them on a thread of its own for as long as it exists.
class StopOnSignals {
 public:
  StopOnSignals();
  StopOnSignals(const StopOnSignals&) = delete;
  StopOnSignals& operator=(const StopOnSignals&) = delete;
  ~StopOnSignals();

  [[nodiscard]] std::stop_token token() const { return stop_.get_token(); }

 private:
  std::stop_source stop_;
  int end_;
  std::thread thread_;
};

}  // namespace syncguard::command
