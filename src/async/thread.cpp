#include "async/thread.hpp"

#include <pthread.h>

#include <utility>

namespace syncguard::async {

SignalsBlocked::SignalsBlocked() noexcept {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before_);
}
SignalsBlocked::~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

std::thread start_thread(const std::string& name, std::function<void()> body) {
  const SignalsBlocked blocked;
  std::thread thread(std::move(body));
  pthread_setname_np(thread.native_handle(), name.c_str());
  return thread;
}

}  // namespace syncguard::async
