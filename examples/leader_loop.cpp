// Leader election: the process that holds the lock leads, and steps down when lost() reports that it may no longer hold
// the lock. In this example, one leader is killed and the next is stopped for too long; each time, another process
// becomes the leader.

#include <syncguard/syncguard.hpp>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>

namespace sg = syncguard;
using namespace std::chrono_literals;

namespace {

// A message from a candidate to the parent, through a pipe.
struct Event {
  enum class Kind : std::int32_t { leads, steps_down };
  Kind kind;
  pid_t candidate;
  std::uint64_t fence;
};

void send_message(int pipe_end, Event::Kind kind, const sg::Lease& lease) {
  const Event event{kind, getpid(), lease.fence().value()};
  if (write(pipe_end, &event, sizeof event) != static_cast<ssize_t>(sizeof event)) _exit(1);
}

// The loop that your program needs. The rest of this file demonstrates it.
void lead_when_elected(sg::Locks& locks, int pipe_end, const std::stop_token& shutdown) {
  // After a leader has died, there is no leader for the ttl and the tolerance of one second.
  const sg::AcquireOptions options{.ttl = 1s, .auto_extend = true, .wait = {.timeout = sg::WaitOptions::no_timeout}};
  while (!shutdown.stop_requested()) {
    try {
      sg::Lease lease = locks.acquire("leader", options, shutdown);
      const std::stop_token lost = lease.lost();
      send_message(pipe_end, Event::Kind::leads, lease);
      while (!lost.stop_requested() && !shutdown.stop_requested()) {
        // The leader's work, in small steps. Every write carries lease.fence(), because this process may be paused
        // between the check of lost() and the write.
        std::this_thread::sleep_for(20ms);
      }
      if (lost.stop_requested()) send_message(pipe_end, Event::Kind::steps_down, lease);
    } catch (const sg::LockError& error) {
      if (error.code() == sg::ErrorCode::aborted) return;  // shutdown was requested
      std::fprintf(stderr, "%s\n", error.what());
      std::this_thread::sleep_for(500ms);
    }
  }
}

int candidate(const std::string& url, int pipe_end) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // SIGTERM becomes a stop request. It is blocked before any threads are started, so that they inherit that.
  sigset_t terminate;
  sigemptyset(&terminate);
  sigaddset(&terminate, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &terminate, nullptr);
  std::stop_source shutdown;
  std::jthread signals([&] {
    int number = 0;
    sigwait(&terminate, &number);
    shutdown.request_stop();
  });
  auto locks = sg::open(url);
  lead_when_elected(locks, pipe_end, shutdown.get_token());
  return 0;
}

Event next_event(int pipe_end) {
  Event event{};
  if (read(pipe_end, &event, sizeof event) != static_cast<ssize_t>(sizeof event)) _exit(1);
  std::printf("process %d %s, fence %s\n", static_cast<int>(event.candidate),
              event.kind == Event::Kind::leads ? "leads" : "steps down", sg::Fence(event.fence).str().c_str());
  std::fflush(stdout);
  return event;
}

}  // namespace

int main() {
  const auto folder = std::filesystem::temp_directory_path() / ("syncguard-leader-" + std::to_string(getpid()));
  const std::string url = "sqlite:" + (folder / "locks.db").string();
  int ends[2];
  if (pipe(ends) != 0) return 1;
  std::array<pid_t, 3> candidates{};
  for (auto& pid : candidates) {
    pid = fork();
    if (pid == 0) _exit(candidate(url, ends[1]));
  }

  const Event first = next_event(ends[0]);
  kill(first.candidate, SIGKILL);
  std::puts("  … and is killed");

  const Event second = next_event(ends[0]);
  kill(second.candidate, SIGSTOP);
  std::puts("  … and is stopped");

  const Event third = next_event(ends[0]);
  kill(second.candidate, SIGCONT);
  std::puts("  … and the stopped process is resumed");
  const Event last = next_event(ends[0]);

  for (const auto pid : candidates) kill(pid, SIGTERM);
  bool exited_cleanly = true;
  for (const auto pid : candidates) {
    int status = 0;
    waitpid(pid, &status, 0);
    if (pid != first.candidate) exited_cleanly = exited_cleanly && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  std::filesystem::remove_all(folder);
  const bool one_after_another = first.fence < second.fence && second.fence < third.fence;
  const bool stepped_down = last.kind == Event::Kind::steps_down && last.candidate == second.candidate;
  return exited_cleanly && one_after_another && stepped_down ? 0 : 1;
}
