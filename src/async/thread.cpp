#include "async/thread.hpp"

#include <pthread.h>

#include <csignal>
#include <utility>

namespace syncguard::async {

std::thread start_thread(const std::string& name, std::function<void()> body) {
  // A thread inherits the mask of its creator, so that there is no moment in which it could take a signal.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const struct Restore {
    const sigset_t* mask;
    ~Restore() { pthread_sigmask(SIG_SETMASK, mask, nullptr); }
  } restore{&before};
  std::thread thread(std::move(body));
  pthread_setname_np(thread.native_handle(), name.c_str());
  return thread;
}

}  // namespace syncguard::async
