// Callbacks of the application that block must not delay anything else.

#include "e2e/faulty_client.hpp"
#include "support/fork_when_idle.hpp"
#include "support/thread_count.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <optional>
#include <vector>

namespace syncguard::testing {
namespace {

TEST(Callbacks, LostNeverWaitsForOtherLostCallbacks) {
  FaultyClient client;
  Signal unblock;
  const auto block = [&] { unblock.wait_for(100s); };
  std::vector<Lease> leases;
  std::vector<std::unique_ptr<std::stop_callback<decltype(block)>>> blocking;
  for (int i = 0; i < 100; ++i) {
    leases.push_back(client.locks.acquire("key " + std::to_string(i), {.ttl = 300ms}));
    blocking.push_back(std::make_unique<std::stop_callback<decltype(block)>>(leases.back().lost(), block));
  }
  leases.push_back(client.locks.acquire("last", {.ttl = 400ms}));
  EXPECT_TRUE(eventually(
      [&] { return std::ranges::all_of(leases, [](const Lease& lease) { return lease.lost().stop_requested(); }); }));
  unblock.set();
}

TEST(Callbacks, LostNeverWaitsForOnExtended) {
  Signal blocked;
  Signal unblock;
  FaultyClient client({.dispose_timeout = 200ms, .callbacks = {.on_extended = [&](const ExtendContext&) {
                                                   blocked.set();
                                                   unblock.wait_for(100s);
                                                 }}});
  auto lease = client.locks.acquire("key", {.ttl = 10min});
  // More than the threads of a pool that all callbacks shared.
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(lease.extend(10min));
  ASSERT_TRUE(blocked.wait_for(60s));
  ASSERT_TRUE(client.locks.release(lease.id()));
  EXPECT_FALSE(lease.extend(10min));
  EXPECT_TRUE(eventually([&] { return lease.lost().stop_requested(); }));
  unblock.set();
}

TEST(Callbacks, OnExtendedRunsInOrderAndOverflowIsDroppedWithWarning) {
  Signal blocked;
  Signal unblock;
  Signal warned;
  std::vector<BootClock::time_point> deadlines;
  FaultyClient client({.callbacks = {.on_extended =
                                         [&](const ExtendContext& context) {
                                           blocked.set();
                                           unblock.wait_for(100s);
                                           deadlines.push_back(context.deadline);
                                         }},
                       .log = Log([&](LogLevel, std::string_view message) {
                         EXPECT_THAT(std::string(message), ::testing::HasSubstr("on_extended"));
                         warned.set();
                       })});
  auto lease = client.locks.acquire("key", {.ttl = 10min});
  EXPECT_TRUE(lease.extend(10min));
  ASSERT_TRUE(blocked.wait_for(60s));
  for (int i = 0; i < 4097; ++i) ASSERT_TRUE(lease.extend(10min));
  EXPECT_TRUE(warned.wait_for(60s));
  unblock.set();
  client.locks.close();
  EXPECT_EQ(deadlines.size(), 4097U) << "close() must wait for queued callbacks";
  EXPECT_TRUE(std::ranges::is_sorted(deadlines));
}

TEST(Callbacks, TenThousandLossesAtOnceNeedFewThreads) {
  FaultyClient client;
  std::atomic<int> calls{0};
  std::atomic<std::size_t> max_threads{0};
  const auto on_lost = [&] {
    if (++calls % 100 == 0) max_threads = std::max(max_threads.load(), threads_named("syncguard-lost"));
  };
  std::vector<Lease> leases;
  std::vector<std::unique_ptr<std::stop_callback<decltype(on_lost)>>> callbacks;
  for (int i = 0; i < 10'000; ++i) {
    leases.push_back(client.locks.acquire("key " + std::to_string(i), {.ttl = 1h}));
    callbacks.push_back(std::make_unique<std::stop_callback<decltype(on_lost)>>(leases.back().lost(), on_lost));
  }
  client.locks.close();
  EXPECT_TRUE(eventually([&] { return calls == 10'000; }));
  EXPECT_GE(max_threads, 1U);
  EXPECT_LE(max_threads, 10U) << "two threads, and a few more if a busy machine delays them";
}

TEST(Callbacks, ClosingReleasesWithoutWaitingForLostCallbacks) {
  FaultyClient client({.dispose_timeout = 10min});
  const auto lease = client.locks.acquire("key");
  Signal blocked;
  Signal unblock;
  const std::stop_callback on_lost(lease.lost(), [&] {
    blocked.set();
    unblock.wait_for(100s);
  });
  auto closing = std::async(std::launch::async, [&] { client.locks.close(); });
  EXPECT_TRUE(blocked.wait_for(60s));
  EXPECT_EQ(closing.wait_for(60s), std::future_status::ready);
  EXPECT_FALSE(client.store->stored("key"));
  unblock.set();
}

TEST(Callbacks, BlockedLogSinkDelaysNeitherRenewalsNorLost) {
  Signal blocked;
  Signal unblock;
  FaultyClient client({.log = Log([&](LogLevel, std::string_view) {
                         blocked.set();
                         unblock.wait_for(100s);
                       })});
  client.faults.next(Operation::extend, Fault::fail(ErrorCode::service_unavailable));
  const auto renewed = client.locks.acquire("renewed", {.ttl = 4500ms, .auto_extend = true});
  const auto doomed = client.locks.acquire("doomed", {.ttl = 5s});
  ASSERT_TRUE(blocked.wait_for(60s)) << "the failed renewal must be logged";
  const auto calls = client.faults.calls(Operation::extend);
  EXPECT_TRUE(client.faults.wait_for_calls(Operation::extend, calls + 2, 60s));
  EXPECT_TRUE(eventually([&] { return doomed.lost().stop_requested(); }));
  EXPECT_FALSE(renewed.lost().stop_requested());
  unblock.set();
}

TEST(Callbacks, FullPipeAtStderrBlocksNothing) {
  const auto run = [] {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0 || fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0) return 2;
    const std::array<char, 4096> block{};
    while (write(ends[1], block.data(), block.size()) > 0) {
    }
    if (fcntl(ends[1], F_SETFL, 0) != 0 || dup2(ends[1], STDERR_FILENO) < 0) return 3;
    FaultyClient client;
    client.faults.next(Operation::extend, Fault::fail(ErrorCode::service_unavailable));
    const auto lease = client.locks.acquire("key", {.ttl = 4500ms, .auto_extend = true});
    const auto doomed = client.locks.acquire("doomed", {.ttl = 3s});
    if (!client.faults.wait_for_calls(Operation::extend, 3, 60s)) return 4;
    return eventually([&] { return doomed.lost().stop_requested(); }) ? 0 : 5;
  };
  // In a child process, because it replaces stderr.
  const pid_t child = fork_when_idle();
  if (child == 0) _exit(run());
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace syncguard::testing
