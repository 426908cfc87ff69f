// The status line on a terminal while a command waits for its lock.
#pragma once

#include <syncguard/locks.hpp>

#include <stop_token>
#include <string>
#include <thread>

namespace syncguard::command {

// Shows one line on stderr, if stderr is a terminal and this job is in the foreground: how long the command has been
// waiting, since when the lock is held, and when it expires. Updates the line every second. The destructor erases it.
class WaitingDisplay {
 public:
  WaitingDisplay(Locks locks, std::string key);

 private:
  std::jthread thread_;
};

}  // namespace syncguard::command
