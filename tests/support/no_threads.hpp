// A system that cannot start threads.
#pragma once

#include <pthread.h>

#include <stdexcept>

namespace syncguard::testing {

// While it exists, new threads get a stack that is larger than the address space, so the system refuses to start them.
class NoThreads {
 public:
  NoThreads() {
    constexpr std::size_t too_large = std::size_t{1} << 60U;
    pthread_attr_t attributes;
    if (pthread_getattr_default_np(&before_) != 0 || pthread_getattr_default_np(&attributes) != 0 ||
        pthread_attr_setstacksize(&attributes, too_large) != 0 || pthread_setattr_default_np(&attributes) != 0) {
      throw std::runtime_error("cannot change the size of stacks");
    }
    pthread_attr_destroy(&attributes);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_{};
};

}  // namespace syncguard::testing
