#include "os/fork.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

namespace syncguard::os {
namespace {

constinit std::atomic<unsigned> generation{0};

struct Guarded {
  std::mutex mutex;
  // Each with the generation in which it was guarded. A child keeps inherited entries, because it must not free memory
  // in in_child().
  std::multiset<std::pair<unsigned, int>> descriptors;
};

// Never destroyed: threads may still be ending while the process exits.
Guarded& guarded() {
  static auto* const instance = new Guarded;
  return *instance;
}

// The mutex is held across the fork so that the child finds the set in a consistent state. Only async-signal-safe calls
// are allowed in in_child().
void before_fork() { guarded().mutex.lock(); }
void in_parent() { guarded().mutex.unlock(); }
void in_child() {
  const unsigned parent_generation = generation.load(std::memory_order_relaxed);
  if (!guarded().descriptors.empty()) {
    // A socket, because the child may add the descriptor to a reactor.
    const int unconnected = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (const auto& [guarded_in, descriptor] : guarded().descriptors) {
      if (guarded_in == parent_generation) dup3(unconnected, descriptor, O_CLOEXEC);
    }
    close(unconnected);
  }
  generation.store(parent_generation + 1, std::memory_order_relaxed);
  guarded().mutex.unlock();
}

bool detect_forks() {
  if (const int error = pthread_atfork(before_fork, in_parent, in_child); error != 0) {
    throw std::system_error(error, std::generic_category(), "cannot detect forks");
  }
  return true;
}

}  // namespace

unsigned fork_generation() {
  // Not an initializer at namespace scope, because static objects may open clients before that runs.
  [[maybe_unused]] static const bool detected = detect_forks();
  return generation.load(std::memory_order_relaxed);
}

LockError OriginProcess::refusal() {
  return LockError(
      ErrorCode::invalid_argument,
      "this client was opened before a fork and cannot be used in the child: open another client after the fork");
}

ForkGuard::ForkGuard(int descriptor) : descriptor_(descriptor), generation_(fork_generation()) {
  const std::lock_guard lock(guarded().mutex);
  guarded().descriptors.emplace(generation_, descriptor_);
}

ForkGuard::~ForkGuard() {
  const std::lock_guard lock(guarded().mutex);
  const auto found = guarded().descriptors.find({generation_, descriptor_});
  if (found != guarded().descriptors.end()) guarded().descriptors.erase(found);
}

}  // namespace syncguard::os
