// Threads of the library.
#pragma once

#include <csignal>
#include <functional>
#include <string>
#include <thread>

namespace syncguard::async {

// For as long as it exists, this thread takes no signal, nor does any thread that is started from it: a thread inherits
// the mask of its creator, so that there is no moment in which it could.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept;
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked();

 private:
  sigset_t before_{};
};

// Starts a thread that blocks all signals: they belong to the application's threads. name has at most 15 characters and
// is what `top -H` shows.
std::thread start_thread(const std::string& name, std::function<void()> body);

}  // namespace syncguard::async
