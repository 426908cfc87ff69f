// What the library does, and does not do, to the process it lives in.

#include "e2e/faulty_client.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

namespace syncguard::testing {
namespace {

TEST(Process, InAForkedChildALeaseIsInertAndTheClientRefuses) {
  FaultyClient client;
  std::optional<Lease> lease = client.locks.acquire("key", {.auto_extend = true});
  const pid_t child = fork();
  if (child == 0) {
    // Only what matters, and no test macros: the child must not run the parent's exit handlers.
    lease.reset();  // must neither hang nor release
    const auto error = error_of([&] { (void)client.locks.is_locked("key"); });
    { const Locks last_copy = std::move(client.locks); }
    _exit(error && error->code() == ErrorCode::invalid_argument ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(client.locks.is_locked("key")) << "the lock is the parent's";
  EXPECT_TRUE(lease->release());
}

// Not with the sanitizer of undefined behaviour, which needs descriptors itself to look at objects.
#ifndef __SANITIZE_ADDRESS__
TEST(Process, WithoutDescriptorsAClientCannotBeMadeAndSaysSo) {
  const pid_t child = fork();
  if (child == 0) {
    // From none to enough for a client.
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

TEST(Process, ThreadsOfTheLibraryBlockAllSignals) {
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
  FaultyClient client({.telemetry = telemetry});
  const auto lease = client.locks.acquire("key", {.ttl = 20ms});
  ASSERT_TRUE(seen.wait_for(60s));
  ASSERT_TRUE(eventually([&] { return lease.lost().stop_requested(); }));

  int threads = 0;
  for (const auto& task : tasks()) {
    if (before.contains(task)) continue;
    std::ifstream status("/proc/self/task/" + task + "/status");
    std::string line;
    while (std::getline(status, line)) {
      if (!line.starts_with("SigBlk:")) continue;
      const auto blocked = std::stoull(line.substr(line.find_first_of("0123456789abcdef", 7)), nullptr, 16);
      for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGALRM, SIGCHLD}) {
        EXPECT_TRUE((blocked >> (signal - 1)) & 1U) << "signal " << signal;
      }
      ++threads;
    }
  }
  EXPECT_GE(threads, 3) << "I/O, notifications, events";
}

}  // namespace
}  // namespace syncguard::testing
