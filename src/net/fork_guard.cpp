#include "net/fork_guard.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mutex>
#include <set>

namespace syncguard::net {
namespace {

struct Guarded {
  std::mutex mutex;
  std::multiset<int> descriptors;
};

// Never destroyed: threads may still end while the process does.
Guarded& guarded() {
  static auto* const instance = new Guarded;
  return *instance;
}

// In the child only async-signal-safe calls are allowed, and the set must be whole: so the mutex is held across the
// fork.
void before_fork() { guarded().mutex.lock(); }
void in_parent() { guarded().mutex.unlock(); }
void in_child() {
  // A socket, because a reactor of the child's may watch it.
  const int nowhere = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  for (const int descriptor : guarded().descriptors) dup3(nowhere, descriptor, O_CLOEXEC);
  close(nowhere);
  guarded().mutex.unlock();
}

[[maybe_unused]] const int registered = pthread_atfork(before_fork, in_parent, in_child);

}  // namespace

ForkGuard::ForkGuard(int descriptor) : descriptor_(descriptor) {
  const std::lock_guard lock(guarded().mutex);
  guarded().descriptors.insert(descriptor_);
}

ForkGuard::~ForkGuard() {
  const std::lock_guard lock(guarded().mutex);
  const auto found = guarded().descriptors.find(descriptor_);
  if (found != guarded().descriptors.end()) guarded().descriptors.erase(found);
}

}  // namespace syncguard::net
