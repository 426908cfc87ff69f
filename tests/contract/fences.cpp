// Fences of a key strictly increase, forever.

#include "contract/contract.hpp"
#include "contract/parts.hpp"
#include "support/fork_when_idle.hpp"

#include <nlohmann/json.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <regex>
#include <set>

namespace syncguard::testing {

const bool parts::fences = true;

namespace {

TEST_P(Contract, FencesGrowAcrossReleasesExpiriesAndClients) {
  std::vector<Fence> fences;
  {
    auto locks = open_client(store());
    for (int i = 0; i < 3; ++i) fences.push_back(locks.acquire("key").fence());
  }
  {
    RawBackend backend(store().make_backend({}));
    fences.push_back(granted(backend.acquire("key", LockId::generate(), 1ms)).fence);
    store().let_pass(1100ms);
    fences.push_back(granted(backend.acquire("key", LockId::generate(), 30s)).fence);
  }
  EXPECT_GT(fences.front(), Fence());
  EXPECT_EQ(std::ranges::adjacent_find(fences, std::greater_equal()), fences.end()) << ::testing::PrintToString(fences);
  EXPECT_EQ(store().fence_counter("key"), fences.back().value()) << "other libraries count on from the newest fence";
}

TEST_P(Contract, FencesGrowByOneIfCounterIsAheadOfClock) {
  auto locks = open_client(store());
  store().set_fence_counter("key", ahead_of_clock);
  EXPECT_EQ(locks.acquire("key").fence(), Fence(ahead_of_clock + 1));
  EXPECT_EQ(locks.acquire("key").fence(), Fence(ahead_of_clock + 2));
  EXPECT_EQ(store().fence_counter("key"), ahead_of_clock + 2);
}

// As after a failover or a restore. Does nothing on stores that only count.
TEST_P(Contract, ClockKeepsFencesGrowingAfterCounterWasLost) {
  auto locks = open_client(store());
  if (locks.capabilities().fences != FenceSource::clock) return;
  Fence newest;
  for (const std::uint64_t lost_counter : {0U, 1U, 1000U}) {
    for (int i = 0; i < 3; ++i) newest = locks.acquire("key").fence();
    // Several grants in the clock's smallest step put the counter ahead of it.
    store().let_pass(10ms);
    store().set_fence_counter("key", lost_counter);
    const auto next = locks.acquire("key").fence();
    EXPECT_GT(next, newest);
    EXPECT_EQ(store().fence_counter("key"), next.value());
  }
}

TEST_P(Contract, FencesAreFifteenDigitsThatSurviveJson) {
  auto locks = open_client(store());
  store().set_fence_counter("key", ahead_of_clock + 41);
  const auto fence = locks.acquire("key").fence();
  EXPECT_TRUE(std::regex_match(fence.str(), std::regex("[0-9]{15}")));
  const nlohmann::json sent = {{"fence", fence.str()}};
  const auto received = nlohmann::json::parse(sent.dump()).at("fence").get<std::string>();
  EXPECT_EQ(Fence::parse(received), fence);
  EXPECT_EQ(received, "050000000000042");
}

TEST_P(Contract, FencesOfConcurrentClientsNeverRepeat) {
  constexpr int workers = 4;
  constexpr int rounds = 25;
  store().set_fence_counter("shared", ahead_of_clock);
  std::vector<std::vector<Fence>> seen(workers);
  std::vector<std::vector<Fence>> seen_of_new(workers);
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w) {
    threads.emplace_back([&, w] {
      auto locks = open_client(store());
      for (int i = 0; i < rounds; ++i) {
        // Besides the shared key, the workers compete for new keys, whose counters must be created only once.
        const AcquireOptions persistent{.wait = {.timeout = 60s, .max_retries = WaitOptions::unlimited_retries}};
        seen[static_cast<std::size_t>(w)].push_back(locks.acquire("shared", persistent).fence());
        seen_of_new[static_cast<std::size_t>(w)].push_back(
            locks.acquire("new " + std::to_string(i), persistent).fence());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  std::set<Fence> all;
  for (const auto& fences : seen) {
    EXPECT_TRUE(std::ranges::is_sorted(fences));
    all.insert(fences.begin(), fences.end());
  }
  EXPECT_EQ(all.size(), static_cast<std::size_t>(workers * rounds)) << "a fence was handed out twice";
  EXPECT_EQ(*all.rbegin(), Fence(ahead_of_clock + workers * rounds)) << "a counter ahead of the clock skips no fence";
  for (std::size_t i = 0; i < rounds; ++i) {
    std::set<Fence> of_key;
    for (const auto& fences : seen_of_new) of_key.insert(fences.at(i));
    EXPECT_EQ(of_key.size(), static_cast<std::size_t>(workers)) << "a counter began twice";
    EXPECT_EQ(store().fence_counter("new " + std::to_string(i)), of_key.rbegin()->value());
  }
}

// Starts a child process that acquires the key `rounds` times and writes each fence to the pipe as text.
pid_t start_worker(const std::string& url, int rounds, int pipe_end) {
  const pid_t child = fork_when_idle();
  if (child != 0) return child;
  try {
    auto locks = open_with_long_timeout(url);
    const AcquireOptions persistent{.wait = {.timeout = 60s, .max_retries = WaitOptions::unlimited_retries}};
    for (int i = 0; i < rounds; ++i) {
      const auto lease = locks.acquire("shared", persistent);
      const std::string line = lease.fence().str() + "\n";
      // Written while the lock is held, so that the order in the pipe is the order of the holders.
      if (write(pipe_end, line.data(), line.size()) != static_cast<ssize_t>(line.size())) _exit(2);
    }
  } catch (const std::exception&) {
    _exit(1);
  }
  _exit(0);
}

// Only for stores that other processes can reach.
TEST_P(Contract, FencesOfConcurrentProcessesGrowInHolderOrder) {
  const auto url = store().url();
  if (!url) return;
  constexpr int workers = 4;
  constexpr int rounds = 20;
  store().set_fence_counter("shared", ahead_of_clock);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::vector<pid_t> children;
  for (int w = 0; w < workers; ++w) children.push_back(start_worker(*url, rounds, ends[1]));
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t size = 0; (size = read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(size));
  }
  close(ends[0]);
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  std::string expected;
  for (std::uint64_t i = 1; i <= workers * rounds; ++i) expected += Fence(ahead_of_clock + i).str() + "\n";
  EXPECT_EQ(text, expected);
}

TEST_P(Contract, FenceAboveWarningThresholdIsGrantedWithWarning) {
  std::vector<std::string> warnings;
  const Log log([&](LogLevel level, std::string_view message) {
    if (level == LogLevel::warning) warnings.emplace_back(message);
  });
  auto locks = open_client(store(), {.log = log});
  store().set_fence_counter("nearly", Fence::warn_above - 1);
  EXPECT_EQ(locks.acquire("nearly").fence(), Fence(Fence::warn_above));
  ASSERT_TRUE(log.flush(20s));
  EXPECT_TRUE(warnings.empty());
  EXPECT_EQ(locks.acquire("nearly").fence(), Fence(Fence::warn_above + 1));
  ASSERT_TRUE(log.flush(20s));
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0].find("nearly"), std::string::npos) << "a warning must not contain the key";
}

TEST_P(Contract, FenceAboveLimitIsRejectedBeforeAnyWrite) {
  auto locks = open_client(store());
  store().set_fence_counter("last", Fence::refuse_above - 1);
  EXPECT_EQ(locks.acquire("last").fence(), Fence(Fence::refuse_above));
  expect_error(ErrorCode::internal, [&] { (void)locks.try_acquire("last"); });
  expect_error(ErrorCode::internal, [&] { (void)locks.acquire("last"); });
  EXPECT_EQ(store().fence_counter("last"), Fence::refuse_above);
  EXPECT_FALSE(store().is_stored("last"));
  EXPECT_FALSE(locks.is_locked("last"));
}

}  // namespace
}  // namespace syncguard::testing
