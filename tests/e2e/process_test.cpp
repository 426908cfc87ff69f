// Effects of the library on its process: descriptors, signals and threads.

#include "e2e/faulty_client.hpp"
#include "support/fork_when_idle.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

namespace syncguard::testing {
namespace {

// Not with the undefined-behavior sanitizer, which needs file descriptors itself.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SYNCGUARD_ADDRESS_SANITIZER 1
#endif
#endif
#ifndef SYNCGUARD_ADDRESS_SANITIZER
TEST(Process, OpeningClientWithoutFreeDescriptorsReportsError) {
  const pid_t child = fork_when_idle();
  if (child == 0) {
    // Raises the limit step by step, until a client can be opened.
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(1);
    limit.rlim_cur = 3;
    for (int opened = 0; opened < 3; ++limit.rlim_cur) {
      if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(2);
      try {
        const auto locks = open("memory:");
        ++opened;
      } catch (const LockError& error) {
        if (error.code() != ErrorCode::internal) _exit(3);
      } catch (const std::exception&) {
        _exit(4);
      }
      if (limit.rlim_cur > 100) _exit(5);
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}
#endif

// Blocks all signals in this thread, as an application does that handles signals in another thread. The library's
// threads must not inherit that for synchronous signals.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;
  ~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

TEST(Process, LibraryThreadsBlockAllButSynchronousSignals) {
  const auto tasks = [] {
    std::set<std::string> names;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
      names.insert(task.path().filename());
    return names;
  };
  const auto before = tasks();
  Signal seen;
  TelemetryOptions telemetry;
  telemetry.on_event = [&](const LockEvent&) { seen.set(); };
  const AllSignalsBlocked of_the_application;
  FaultyClient client({.telemetry = telemetry});
  const auto lease = client.locks.acquire("key", {.ttl = 20ms});
  ASSERT_TRUE(seen.wait_for(60s));
  ASSERT_TRUE(eventually([&] { return lease.lost().stop_requested(); }));

  int threads = 0;
  for (const auto& task : tasks()) {
    if (before.contains(task)) continue;
    std::string name;
    std::getline(std::ifstream("/proc/self/task/" + task + "/comm"), name);
    // Skips threads of a sanitizer.
    if (!name.starts_with("syncguard-")) continue;
    std::ifstream status("/proc/self/task/" + task + "/status");
    std::string line;
    while (std::getline(status, line)) {
      if (!line.starts_with("SigBlk:")) continue;
      const auto blocked = std::stoull(line.substr(line.find_first_of("0123456789abcdef", 7)), nullptr, 16);
      for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGALRM, SIGCHLD}) {
        EXPECT_TRUE((blocked >> (signal - 1)) & 1U) << "signal " << signal;
      }
      for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) {
        EXPECT_FALSE((blocked >> (signal - 1)) & 1U) << "signal " << signal;
      }
      ++threads;
    }
  }
  EXPECT_GE(threads, 3) << "threads for I/O, for lost() and for events";
}

}  // namespace
}  // namespace syncguard::testing
