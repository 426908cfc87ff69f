// Many processes that start at once, each with its own key.

#include "backends/url.hpp"
#include "bench.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>

namespace syncguard::bench {
namespace {

constexpr int processes = 200;

// Starts a program in many processes at once and returns the time until all have ended.
Seconds run(const std::function<std::vector<std::string>(int number)>& command) {
  int start[2];
  if (pipe(start) != 0) throw std::runtime_error("no pipe");
  for (int i = 0; i < processes; ++i) {
    auto words = command(i);
    const pid_t child = fork();
    if (child == -1) throw std::runtime_error("no process");
    if (child != 0) continue;
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    // Ends when the parent closes the other end.
    close(start[1]);
    char nothing = 0;
    while (read(start[0], &nothing, 1) > 0) {
    }
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  close(start[0]);
  const auto begin = Clock::now();
  close(start[1]);
  int failed = 0;
  for (int status = 0; wait(&status) > 0;) failed += status != 0 ? 1 : 0;
  if (failed != 0) throw std::runtime_error(std::to_string(failed) + " processes failed");
  return Clock::now() - begin;
}

// The same two transactions as a lock and its release.
std::string transactions(int number) {
  const std::string key = "'start " + std::to_string(number) + "'";
  return "BEGIN IMMEDIATE; INSERT INTO syncguard_fence_counters VALUES ('fence:' || " + key + ", 1, " + key +
         ") ON CONFLICT (fence_key) DO UPDATE SET fence = fence + 1; INSERT OR REPLACE INTO syncguard_locks (key, "
         "lock_id, expires_at_ms, acquired_at_ms, fence, user_key) VALUES (" +
         key + ", " + key + ", 0, 0, '1', " + key +
         "); COMMIT; PRAGMA synchronous = NORMAL; BEGIN IMMEDIATE; DELETE FROM syncguard_locks WHERE key = " + key +
         "; COMMIT;";
}

}  // namespace

void measure_start(const Settings& settings, Report& report) {
  if (!settings.url.starts_with("sqlite:")) return;
  BackendUrl url(settings.url);
  const std::string path = sqlite::options_of(url).path;
  const auto with_library = [&](int number) -> std::vector<std::string> {
    const auto key = "start " + std::to_string(number);
    return {SYNCGUARD_COMMAND, "--url", settings.url, "run", "--key", key, "--", "true"};
  };
  const auto with_floor = [&](int number) -> std::vector<std::string> {
    return {"sqlite3", "-cmd", ".timeout 60000", path, transactions(number)};
  };
  constexpr int rounds = 3;
  const auto result = compare(
      settings, [&](Seconds) { return run(with_library).count(); }, [&](Seconds) { return run(with_floor).count(); },
      rounds);
  report.add({.group = "start (floor: sqlite3 processes with the same two transactions)",
              .name = std::to_string(processes) + " processes at once, `syncguard run` with a key each",
              .value = result.library,
              .unit = "s",
              .floor = result.floor,
              .ratio = result.ratio});
}

}  // namespace syncguard::bench
