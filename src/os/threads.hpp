// Starts the library's threads.
#pragma once

#include <csignal>
#include <functional>
#include <string>
#include <thread>

namespace syncguard::os {

// While it exists, this thread, and every thread started from it, takes no signal except the synchronous ones (SIGSEGV,
// SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS), so that crash handlers run. A new thread inherits the mask of its creator,
// so there is no moment at which it runs with another mask.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept;
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked();

 private:
  sigset_t before_{};
};

// Starts a thread with signals blocked as by SignalsBlocked: signals are for the application's threads. name is shown
// by `top -H` and has at most 15 characters.
std::thread start_thread(const std::string& name, std::function<void()> body);

// For detached threads. While it exists, exit() waits for it, for at most a second: OpenSSL frees its locks when the
// process exits, and a thread that is still using them would crash. A forked child does not wait for threads of its
// parent. Create it before the thread starts, and destroy it as the last action of the thread.
class DelaysExit {
 public:
  DelaysExit();
  DelaysExit(const DelaysExit&) = delete;
  DelaysExit& operator=(const DelaysExit&) = delete;
  ~DelaysExit();

 private:
  const unsigned generation_;
};

// Whether exit() is waiting. A thread that delays it should end.
bool is_exiting() noexcept;

}  // namespace syncguard::os
