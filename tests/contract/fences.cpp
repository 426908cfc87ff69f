// Fences: strictly increasing, for ever.

#include "contract/contract.hpp"
#include "contract/parts.hpp"

#include <nlohmann/json.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <regex>
#include <set>

namespace syncguard::testing {

const bool parts::fences = true;

namespace {

TEST_P(Contract, FencesGrowAcrossReleasesExpiriesAndClients) {
  std::vector<std::string> fences;
  {
    auto locks = open_client(store());
    for (int i = 0; i < 3; ++i) fences.push_back(locks.acquire("key").fence().str());
  }
  {
    RawBackend backend(store().make_backend({}));
    fences.push_back(granted(backend.acquire("key", LockId::generate(), 1ms)).fence.str());
    store().let_pass(1100ms);
    fences.push_back(granted(backend.acquire("key", LockId::generate(), 30s)).fence.str());
  }
  EXPECT_EQ(fences, (std::vector<std::string>{"000000000000001", "000000000000002", "000000000000003",
                                              "000000000000004", "000000000000005"}));
}

TEST_P(Contract, FencesAreFifteenDigitsThatSurviveJson) {
  auto locks = open_client(store());
  store().set_fence_counter("key", 41);
  const auto fence = locks.acquire("key").fence();
  EXPECT_TRUE(std::regex_match(fence.str(), std::regex("[0-9]{15}")));
  const nlohmann::json sent = {{"fence", fence.str()}};
  const auto received = nlohmann::json::parse(sent.dump()).at("fence").get<std::string>();
  EXPECT_EQ(Fence::parse(received), fence);
  EXPECT_EQ(received, "000000000000042");
}

TEST_P(Contract, FencesOfConcurrentClientsNeverRepeat) {
  constexpr int workers = 4;
  constexpr int rounds = 25;
  std::vector<std::vector<Fence>> seen(workers);
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w) {
    threads.emplace_back([&, w] {
      auto locks = open_client(store());
      for (int i = 0; i < rounds; ++i) {
        // A first-ever key each time besides the shared one, where a counter that begins twice would show.
        const AcquireOptions persistent{.wait = {.timeout = 60s, .max_retries = WaitOptions::unlimited_retries}};
        seen[static_cast<std::size_t>(w)].push_back(locks.acquire("shared", persistent).fence());
        (void)locks.acquire("new " + std::to_string(i), persistent);
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
  EXPECT_EQ(*all.rbegin(), Fence(workers * rounds)) << "none was skipped";
  for (int i = 0; i < rounds; ++i) {
    EXPECT_EQ(store().fence_counter("new " + std::to_string(i)), static_cast<std::uint64_t>(workers));
  }
}

// A child process that acquires the key so many times and writes each fence, as text, to the pipe.
pid_t start_worker(const std::string& url, int rounds, int pipe_end) {
  const pid_t child = fork();
  if (child != 0) return child;
  try {
    auto locks = open_patiently(url);
    const AcquireOptions persistent{.wait = {.timeout = 60s, .max_retries = WaitOptions::unlimited_retries}};
    for (int i = 0; i < rounds; ++i) {
      const auto lease = locks.acquire("shared", persistent);
      const std::string line = lease.fence().str() + "\n";
      // While the lock is held, so that the order in the pipe is the order of the holders.
      if (write(pipe_end, line.data(), line.size()) != static_cast<ssize_t>(line.size())) _exit(2);
    }
  } catch (const std::exception&) {
    _exit(1);
  }
  _exit(0);
}

// Where other processes can reach the store, they take part; elsewhere the test above has to do.
TEST_P(Contract, FencesOfConcurrentProcessesGrowInTheOrderOfTheHolders) {
  const auto url = store().url();
  if (!url) return;
  constexpr int workers = 4;
  constexpr int rounds = 20;
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
  for (std::uint64_t fence = 1; fence <= workers * rounds; ++fence) expected += Fence(fence).str() + "\n";
  EXPECT_EQ(text, expected);
}

TEST_P(Contract, AFenceAboveTheWarningThresholdIsGrantedWithAWarning) {
  std::vector<std::string> warnings;
  std::mutex mutex;
  auto locks = open_client(store(), {.log = Log([&](LogLevel level, std::string_view message) {
                                       const std::lock_guard lock(mutex);
                                       if (level == LogLevel::warning) warnings.emplace_back(message);
                                     })});
  store().set_fence_counter("nearly", Fence::warn_above - 1);
  EXPECT_EQ(locks.acquire("nearly").fence(), Fence(Fence::warn_above));
  EXPECT_TRUE(warnings.empty());
  EXPECT_EQ(locks.acquire("nearly").fence(), Fence(Fence::warn_above + 1));
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0].find("nearly"), std::string::npos) << "no identifiers in warnings";
}

TEST_P(Contract, AFenceAboveTheLimitIsRefusedBeforeAnythingIsWritten) {
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
