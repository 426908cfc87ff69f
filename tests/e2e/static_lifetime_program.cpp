// A program whose clients and leases have static storage duration, or are leaked. Arguments: a case and a key. The URL
// is in the environment, as for the command. Exits with 0 if the lock was held and given back as it should be.

#include "support/eventually.hpp"

#include <syncguard/syncguard.hpp>

#include <openssl/crypto.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace {

namespace sg = syncguard;
using namespace std::chrono_literals;

// Also before main.
std::string argument(std::size_t index) {
  std::ifstream command_line("/proc/self/cmdline");
  std::string text;
  for (std::size_t i = 0; i <= index; ++i) std::getline(command_line, text, '\0');
  return text;
}

std::string url() { return std::getenv("SYNCGUARD_URL"); }  // NOLINT(concurrency-mt-unsafe)
std::string key() { return argument(2); }

[[noreturn]] void fail(const char* message) {
  std::fprintf(stderr, "%s\n", message);
  _exit(1);
}

// For a lease that nothing may delay or end: the ttl is far longer than any test.
sg::AcquireOptions until_released() { return {.ttl = 10min, .wait = {.timeout = 1min}}; }

// The first static object of this program, so the last one to be destroyed: it uses the library when everything else is
// gone.
struct LastObject {
  LastObject() = default;
  LastObject(const LastObject&) = delete;
  LastObject& operator=(const LastObject&) = delete;
  ~LastObject() {
    try {
      if (sg::open(url()).is_locked(key()) != expect_lock)
        fail("at the end of exit(), the lock is not as it should be");
    } catch (const sg::LockError& error) {
      // Without OpenSSL, leases are released, but no new client can use TLS.
      const bool expected = argument(1) == "global-after-openssl" && url().starts_with("rediss:");
      if (!expected) fail(error.what());
    }
    // OpenSSL no longer knows its own memory: a leak checker would report it.
    if (argument(1) == "global-after-openssl") _exit(0);
  }
  bool expect_lock = false;
} last_object;

// Objects of the application that are destroyed while a leaked client works.
struct SlowObject {
  SlowObject() = default;
  SlowObject(const SlowObject&) = delete;
  SlowObject& operator=(const SlowObject&) = delete;
  ~SlowObject() {
    if (lease == nullptr) return;
    for (int renewals = 0; renewals < 2; ++renewals) {
      const auto before = lease->deadline();
      const bool renewed =
          syncguard::testing::eventually([&] { return lease->deadline() != before || lease->lost().stop_requested(); });
      if (!renewed || lease->lost().stop_requested()) fail("the leaked lease was lost while the process exited");
    }
  }
  sg::Lease* lease = nullptr;
} slow_object;

std::optional<sg::Locks> global_locks;
sg::Lease global_lease;

sg::Lease acquired_before_main = argument(1) == "initializer" || argument(1) == "fork-after-initializer"
                                     ? sg::open(url()).acquire(key(), until_released())
                                     : sg::Lease();

// A failed release is reported, but does not end the process: so it is looked for here.
sg::ClientOptions options() {
  sg::ClientOptions chosen;
  chosen.callbacks.on_release_error = [](const sg::LockError& error, const sg::ReleaseContext&) { fail(error.what()); };
  return chosen;
}

void use_function_local_objects() {
  static sg::Locks locks = sg::open(url(), options());
  static sg::Lease lease = locks.acquire(key(), until_released());
  if (!locks.is_locked(key())) fail("not locked");
}

void use_global_objects() {
  global_locks = sg::open(url(), options());
  global_lease = global_locks->acquire(key(), until_released());
  if (!global_locks->is_locked(key())) fail("not locked");
}

// OpenSSL frees its objects at exit, before the global objects are destroyed, because they were created earlier.
void use_global_objects_after_openssl() {
  OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CRYPTO_STRINGS, nullptr);
  use_global_objects();
}

void use_object_created_before_main() {
  if (!acquired_before_main || acquired_before_main.lost().stop_requested()) fail("not locked");
  if (!sg::open(url()).is_locked(key())) fail("not locked");
}

// Leak checkers do not report them.
sg::Locks* leaked_locks = nullptr;
sg::Lease* leaked_lease = nullptr;

void leak() {
  leaked_locks = new sg::Locks(sg::open(url(), options()));
  leaked_lease =
      new sg::Lease(leaked_locks->acquire(key(), {.ttl = 6s, .auto_extend = true, .wait = {.timeout = 1min}}));
  slow_object.lease = leaked_lease;
  last_object.expect_lock = true;
}

// The child must not open a database that the parent opened before main.
void fork_after_initializer() {
  const pid_t child = fork();
  if (child == 0) {
    try {
      (void)sg::open(url()).is_locked(key());
    } catch (const sg::LockError& error) {
      _exit(error.code() == sg::ErrorCode::invalid_argument ? 0 : 2);
    }
    _exit(1);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) fail("the child could use the parent's database");
}

}  // namespace

int main() {
  const std::map<std::string, std::function<void()>> cases = {
      {"function-local", use_function_local_objects},
      {"global", use_global_objects},
      {"global-after-openssl", use_global_objects_after_openssl},
      {"initializer", use_object_created_before_main},
      {"leaked", leak},
      {"fork-after-initializer", fork_after_initializer},
  };
  cases.at(argument(1))();
}
