#include "os/threads.hpp"

#include "os/fork.hpp"

#include <openssl/crypto.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <utility>

namespace syncguard::os {
namespace {

constinit std::atomic<bool> exiting{false};

// How many threads delay the exit of the process with this fork generation. One word, because a forked child may find a
// mutex locked forever. Aligned, so that clang needs no library for its atomic operations.
struct alignas(8) Delays {
  std::uint32_t generation = 0;
  std::uint32_t threads = 0;
};
constinit std::atomic<Delays> delays{};

void wait_for_threads() {
  exiting = true;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (std::chrono::steady_clock::now() < deadline) {
    const Delays current = delays;
    if (current.generation != fork_generation() || current.threads == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // Clients of static objects that are destroyed later still work.
  exiting = false;
}

void add_to_delays(std::uint32_t generation, int change) {
  Delays current = delays;
  Delays next;
  do {
    next = {generation, (current.generation == generation ? current.threads : 0) + static_cast<std::uint32_t>(change)};
  } while (!delays.compare_exchange_weak(current, next));
}

}  // namespace

DelaysExit::DelaysExit() : generation_(fork_generation()) {
  // If the application initializes OpenSSL, OpenSSL has registered a function that frees everything. Functions run at
  // exit in the reverse order of their registration, so this one runs before. Otherwise OpenSSL registers none.
  [[maybe_unused]] static const bool registered =
      OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr) == 1 && std::atexit(wait_for_threads) == 0;
  add_to_delays(generation_, 1);
}

DelaysExit::~DelaysExit() {
  if (generation_ != fork_generation()) return;
  // Otherwise OpenSSL would free this when the thread has ended.
  OPENSSL_thread_stop();
  add_to_delays(generation_, -1);
}

bool is_exiting() noexcept { return exiting; }

SignalsBlocked::SignalsBlocked() noexcept {
  sigset_t blocked;
  sigfillset(&blocked);
  // The thread itself causes these signals. If they were blocked, the process would end without running its crash
  // handler.
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&blocked, signal);
  pthread_sigmask(SIG_SETMASK, &blocked, &before_);
}
SignalsBlocked::~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

std::thread start_thread(const std::string& name, std::function<void()> body) {
  const SignalsBlocked blocked;
  std::thread thread(std::move(body));
  pthread_setname_np(thread.native_handle(), name.c_str());
  return thread;
}

}  // namespace syncguard::os
