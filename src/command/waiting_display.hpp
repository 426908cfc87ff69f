// What a person at a terminal sees while a command waits for its lock.
#pragma once

#include <syncguard/locks.hpp>

#include <stop_token>
#include <string>
#include <thread>

namespace syncguard::command {

// Shows on stderr, if that is a terminal, one line that it keeps up to date and erases when it is destroyed: for how
// long it has been waiting, since when the lock is held and when it would expire.
class WaitingDisplay {
 public:
  WaitingDisplay(Locks locks, std::string key);

 private:
  // Ends before anything else goes.
  std::jthread thread_;
};

}  // namespace syncguard::command
