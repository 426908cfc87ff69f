// `./dev demo`: several processes compete for one lock, and one of them is killed while it holds the lock. At the end,
// the demo checks from the processes' reports that their turns never overlapped.
//
// usage: example_demo [SECONDS [URL]]    without a URL, in a temporary file

#include <syncguard/syncguard.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace sg = syncguard;
using namespace std::chrono_literals;

namespace {

constexpr int workers = 5;
constexpr int victim = 2;
constexpr int turn_to_kill = 3;
constexpr auto turn_length = 60ms;
constexpr auto ttl = 500ms;

// The monotonic clock is the same for all processes of the machine.
std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A message from a worker to the parent, through a pipe; small enough to be written atomically.
struct Report {
  enum class Kind : std::int32_t { holds, waits_to_be_killed, leaves };
  Kind kind;
  std::int32_t worker;
  std::uint64_t fence;
  std::int64_t at_us;
};

int work(int worker, const std::string& url, std::int64_t end_us, int pipe_end) {
  const auto send_message = [&](Report::Kind kind, const sg::Lease& lease) {
    const Report report{kind, worker, lease.fence().value(), now_us()};
    return write(pipe_end, &report, sizeof report) == static_cast<ssize_t>(sizeof report);
  };
  auto locks = sg::open(url);
  for (int turn = 1; now_us() < end_us; ++turn) {
    sg::Lease lease = locks.acquire("demo", {.ttl = ttl, .wait = {.timeout = 1min}});
    const bool killed_here = worker == victim && turn == turn_to_kill;
    if (!send_message(killed_here ? Report::Kind::waits_to_be_killed : Report::Kind::holds, lease)) return 1;
    if (killed_here) {
      for (;;) pause();
    }
    std::this_thread::sleep_for(turn_length);
    if (!send_message(Report::Kind::leaves, lease)) return 1;
  }
  return 0;
}

struct Turn {
  int worker;
  std::uint64_t fence;
  std::int64_t from_us;
  std::int64_t to_us;  // 0 until the turn ends; stays 0 if the worker was killed
};

void show(std::int64_t start_us, const Turn& turn, const char* note) {
  std::string lane(workers, '.');
  lane[static_cast<std::size_t>(turn.worker)] = '#';
  std::printf("  %5.2f s   %s   process %d holds the lock, fence %s%s\n",
              static_cast<double>(turn.from_us - start_us) / 1e6, lane.c_str(), turn.worker + 1,
              sg::Fence(turn.fence).str().c_str(), note);
  std::fflush(stdout);
}

int verdict(const std::vector<Turn>& turns, const Turn& killed) {
  int overlaps = 0;
  int out_of_order = 0;
  double taken_over_after = -1;
  std::vector<int> counts(workers);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    ++counts[static_cast<std::size_t>(turns[i].worker)];
    if (i == 0) continue;
    // A killed process ends immediately, but its lock stays held until it expires.
    const Turn& before = turns[i - 1];
    if (before.to_us != 0 && turns[i].from_us < before.to_us) ++overlaps;
    if (turns[i].fence <= before.fence) ++out_of_order;
    if (&before == &killed) taken_over_after = static_cast<double>(turns[i].from_us - before.from_us) / 1e6;
  }
  std::printf("\n  %zu turns, per process:", turns.size());
  for (const int count : counts) std::printf(" %d", count);
  std::printf("\n  overlaps:              %d\n  fences out of order:   %d\n", overlaps, out_of_order);
  std::printf("  killed, taken over:    after %.2f s (its ttl and a second)\n", taken_over_after);
  const bool good = overlaps == 0 && out_of_order == 0 && taken_over_after >= 0.5;
  std::puts(good ? "\n  No two processes ever held the lock at the same time." : "\n  The lock did NOT hold!");
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::stod(argv[1]) : 3;
  std::string folder = (std::filesystem::temp_directory_path() / "syncguard-demo-XXXXXX").string();
  std::array<int, 2> ends{};
  if (mkdtemp(folder.data()) == nullptr || pipe(ends.data()) != 0) {
    std::perror("demo");
    return 1;
  }
  const std::string url = argc > 2 ? argv[2] : "sqlite:" + folder + "/locks.db";
  std::printf("%d processes want the same lock for %.1f s; process %d will be killed while it holds it:\n\n", workers,
              seconds, victim + 1);
  std::fflush(stdout);

  const std::int64_t start_us = now_us();
  const auto end_us = start_us + static_cast<std::int64_t>(seconds * 1e6);
  std::vector<pid_t> children;
  for (int worker = 0; worker < workers; ++worker) {
    const pid_t child = fork();
    if (child == 0) {
      close(ends[0]);
      try {
        _exit(work(worker, url, end_us, ends[1]));
      } catch (const std::exception& error) {
        std::fprintf(stderr, "process %d: %s\n", worker + 1, error.what());
        _exit(1);
      }
    }
    children.push_back(child);
  }
  close(ends[1]);

  std::vector<Turn> turns;
  turns.reserve(10'000);
  const Turn* killed = nullptr;
  Report report{};
  while (read(ends[0], &report, sizeof report) == static_cast<ssize_t>(sizeof report)) {
    if (report.kind == Report::Kind::leaves) {
      const auto turn =
          std::find_if(turns.rbegin(), turns.rend(), [&](const Turn& t) { return t.fence == report.fence; });
      if (turn != turns.rend()) turn->to_us = report.at_us;
      continue;
    }
    turns.push_back({report.worker, report.fence, report.at_us, 0});
    const bool kill_now = report.kind == Report::Kind::waits_to_be_killed;
    if (kill_now) {
      kill(children[victim], SIGKILL);
      killed = &turns.back();
    }
    show(start_us, turns.back(), kill_now ? "   <- killed" : "");
  }
  bool succeeded = true;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    if (child != children[victim] && status != 0) succeeded = false;
  }
  std::filesystem::remove_all(folder);
  if (!succeeded || killed == nullptr) {
    std::puts("\n  A process failed, or was too slow to be killed: the demo proves nothing.");
    return 2;
  }
  return verdict(turns, *killed);
}
