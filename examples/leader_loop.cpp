// One of several processes leads. It leads while it holds the lock, and steps down when lost() says that it cannot know
// any more whether it does. Here one leader is killed and the next one is stopped for too long: there is always
// another.

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

// What a candidate tells the audience, through a pipe.
struct News {
  enum class Kind : std::int32_t { leads, steps_down };
  Kind kind;
  pid_t candidate;
  std::uint64_t fence;
};

void tell(int pipe_end, News::Kind kind, const sg::Lease& lease) {
  const News news{kind, getpid(), lease.fence().value()};
  if (write(pipe_end, &news, sizeof news) != static_cast<ssize_t>(sizeof news)) _exit(1);
}

// The loop itself. Everything else in this file is the theatre around it.
void run_for_office(sg::Locks& locks, int pipe_end, const std::stop_token& shutdown) {
  // The ttl is how long nobody leads after a leader died, but for the tolerance of one second.
  const sg::AcquireOptions options{
      .ttl = 1s,
      .auto_extend = true,
      .wait = {.timeout = sg::WaitOptions::no_timeout, .max_retries = sg::WaitOptions::unlimited_retries}};
  while (!shutdown.stop_requested()) {
    try {
      sg::Lease lease = locks.acquire("leader", options, shutdown);
      const std::stop_token lost = lease.lost();
      tell(pipe_end, News::Kind::leads, lease);
      while (!lost.stop_requested() && !shutdown.stop_requested()) {
        // A leader's work, in small steps. What it writes carries lease.fence(): between the last look at lost() and
        // the write this process may have been paused.
        std::this_thread::sleep_for(20ms);
      }
      if (lost.stop_requested()) tell(pipe_end, News::Kind::steps_down, lease);
    } catch (const sg::LockError& error) {
      if (error.code() == sg::ErrorCode::aborted) return;  // the shutdown
      std::fprintf(stderr, "%s\n", error.what());          // worth a look, and another election
      std::this_thread::sleep_for(500ms);
    }
  }
}

int candidate(const std::string& url, int pipe_end) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // SIGTERM becomes a stop request. It is blocked before there are threads, so that none of them is interrupted.
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
  run_for_office(locks, pipe_end, shutdown.get_token());
  return 0;
}

News next_news(int pipe_end) {
  News news{};
  if (read(pipe_end, &news, sizeof news) != static_cast<ssize_t>(sizeof news)) _exit(1);
  std::printf("process %d %s, fence %s\n", static_cast<int>(news.candidate),
              news.kind == News::Kind::leads ? "leads" : "steps down", sg::Fence(news.fence).str().c_str());
  std::fflush(stdout);
  return news;
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

  const News first = next_news(ends[0]);
  kill(first.candidate, SIGKILL);
  std::puts("  … and is killed");

  const News second = next_news(ends[0]);
  kill(second.candidate, SIGSTOP);
  std::puts("  … and is stopped");

  const News third = next_news(ends[0]);
  kill(second.candidate, SIGCONT);
  std::puts("  … and the one that was stopped goes on");
  const News last = next_news(ends[0]);

  for (const auto pid : candidates) kill(pid, SIGTERM);
  bool ended_well = true;
  for (const auto pid : candidates) {
    int status = 0;
    waitpid(pid, &status, 0);
    if (pid != first.candidate) ended_well = ended_well && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  std::filesystem::remove_all(folder);
  const bool one_after_another = first.fence < second.fence && second.fence < third.fence;
  const bool stepped_down = last.kind == News::Kind::steps_down && last.candidate == second.candidate;
  return ended_well && one_after_another && stepped_down ? 0 : 1;
}
