// What an allocation that fails means (docs/adr/0053-out-of-memory.md): each allocation of a step fails in turn.

#include "e2e/faulty_client.hpp"

#include <syncguard/syncguard.hpp>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <optional>

namespace {

enum class Failing { nothing, nth_of_one_thread, nth_of_any_thread, everything };

std::atomic<Failing> failing{Failing::nothing};
std::atomic<long> allocations_before_failure{0};
std::atomic<bool> has_failed{false};
thread_local bool is_chosen_thread = false;

bool fails_now() {
  switch (failing.load()) {
    case Failing::nothing:
      return false;
    case Failing::nth_of_one_thread:
      if (!is_chosen_thread) return false;
      [[fallthrough]];
    case Failing::nth_of_any_thread:
      if (allocations_before_failure.fetch_sub(1) != 0) return false;
      break;
    case Failing::everything:
      break;
  }
  has_failed = true;
  return true;
}

void* allocate(std::size_t size) {
  void* const memory = fails_now() ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Nothing in this program has a type with extended alignment, whose operators are not replaced.
void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t /*size*/) noexcept { std::free(memory); }

// Asio allocates the frames of coroutines with it. A sanitizer has its own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t size) {
  void* memory = nullptr;
  if (fails_now() || posix_memalign(&memory, std::max(alignment, sizeof(void*)), size) != 0) return nullptr;
  return memory;
}
#endif

namespace syncguard::testing {
namespace {

// While it exists, allocations fail.
class FailingAllocations {
 public:
  FailingAllocations(Failing which, long allocations) {
    has_failed = false;
    allocations_before_failure = allocations;
    is_chosen_thread = true;
    failing = which;
  }
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;
  ~FailingAllocations() { failing = Failing::nothing; }
};

ClientOptions silent() {
  ClientOptions options;
  options.log = Log([](LogLevel, std::string_view) {});
  return options;
}

struct Client {
  std::shared_ptr<MemoryStore> store = std::make_shared<MemoryStore>();
  Locks locks{make_memory_backend({.store = store}), silent()};

  // Whether the client still tells losses: the thread that does this must have survived.
  [[nodiscard]] bool tells_losses() const {
    const auto lease = locks.acquire("short", {.ttl = 1ms, .wait = {.timeout = 60s}});
    return eventually([&] { return lease.lost().stop_requested(); });
  }
};

// Calls step(client) again and again. In each round one more allocation succeeds before one fails, until none fails.
// step returns whether it threw. Then check(client, threw).
template <typename Prepare, typename Step, typename Check>
void fail_each_allocation(Failing which, const Prepare& prepare, const Step& step, const Check& check) {
  for (long n = 0;; ++n) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    ASSERT_LT(n, 500) << "this never ends";
    Client client;
    auto prepared = prepare(client);
    bool threw = false;
    {
      const FailingAllocations fail(which, n);
      try {
        step(client, prepared);
      } catch (const std::bad_alloc&) {
        threw = true;
      } catch (const LockError&) {
        threw = true;
      }
    }
    const bool failed = has_failed;
    check(client, prepared, threw);
    ASSERT_TRUE(client.tells_losses());
    if (!failed) {
      ASSERT_GT(n, 0) << "the step must allocate";
      return;
    }
  }
}

constexpr auto nothing = [](const Client&) { return 0; };
constexpr auto held = [](const Client& client) { return std::optional(client.locks.acquire("key")); };

TEST(OutOfMemory, OpeningFailsOrSucceeds) {
  std::optional<Locks> opened;
  fail_each_allocation(
      Failing::nth_of_one_thread, nothing,
      [&](const Client& client, int) { opened.emplace(make_memory_backend({.store = client.store}), ClientOptions{}); },
      [&](const Client&, int, bool threw) {
        EXPECT_EQ(opened.has_value(), !threw);
        opened.reset();
      });
}

TEST(OutOfMemory, FailedTryLeavesNoLock) {
  std::optional<Lease> lease;
  fail_each_allocation(
      Failing::nth_of_one_thread, nothing,
      [&](const Client& client, int) {
        if (auto acquired = client.locks.try_acquire("key")) lease = std::move(*acquired);
      },
      [&](const Client& client, int, bool threw) {
        EXPECT_EQ(lease.has_value(), !threw);
        lease.reset();
        EXPECT_TRUE(eventually([&] { return !client.store->stored("key"); }));
      });
}

TEST(OutOfMemory, FailedAcquireLeavesNoLockAndBlocksNoOtherCaller) {
  std::optional<Lease> lease;
  fail_each_allocation(
      Failing::nth_of_one_thread, nothing,
      [&](const Client& client, int) { lease = client.locks.acquire("key", {.auto_extend = true}); },
      [&](const Client& client, int, bool threw) {
        EXPECT_EQ(lease.has_value(), !threw);
        lease.reset();
        EXPECT_TRUE(eventually([&] { return !client.store->stored("key"); }));
        EXPECT_TRUE(client.locks.acquire("key", {.wait = {.timeout = 60s}}).release());
      });
}

TEST(OutOfMemory, FailedWaitLeavesNoLockAndBlocksNoOtherCaller) {
  fail_each_allocation(
      Failing::nth_of_any_thread, held,
      [](const Client& client, std::optional<Lease>&) {
        (void)client.locks.acquire("key", {.wait = {.timeout = 20ms, .retry_delay = 5ms}});
      },
      [](const Client& client, std::optional<Lease>& holder, bool threw) {
        EXPECT_TRUE(threw) << "the key is held";
        holder.reset();
        EXPECT_TRUE(eventually([&] { return !client.store->stored("key"); }));
        EXPECT_TRUE(client.locks.acquire("key", {.wait = {.timeout = 60s}}).release());
      });
}

TEST(OutOfMemory, FailedReleaseCanBeRepeated) {
  fail_each_allocation(
      Failing::nth_of_one_thread, held,
      [](const Client&, std::optional<Lease>& lease) { EXPECT_TRUE(lease->release()); },
      [](const Client& client, std::optional<Lease>& lease, bool threw) {
        if (threw) lease->release();
        EXPECT_FALSE(client.store->stored("key"));
        EXPECT_FALSE(lease->lost().stop_requested());
      });
}

TEST(OutOfMemory, FailedExtendCanBeRepeated) {
  fail_each_allocation(
      Failing::nth_of_one_thread, held,
      [](const Client&, std::optional<Lease>& lease) { EXPECT_TRUE(lease->extend(1h)); },
      [](const Client&, std::optional<Lease>& lease, bool threw) {
        EXPECT_GT(lease->remaining(), threw ? 0min : 59min);
        EXPECT_TRUE(lease->extend(2h));
      });
}

TEST(OutOfMemory, DestructorReleasesLater) {
  fail_each_allocation(
      Failing::nth_of_one_thread, held, [](const Client&, std::optional<Lease>& lease) { lease.reset(); },
      [](const Client& client, const std::optional<Lease>&, bool) {
        EXPECT_TRUE(eventually([&] { return !client.store->stored("key"); }));
      });
}

TEST(OutOfMemory, FailedRenewalIsRepeated) {
  fail_each_allocation(
      Failing::nth_of_any_thread,
      [](const Client& client) {
        return std::optional(client.locks.acquire("key", {.ttl = 1500ms, .auto_extend = true}));
      },
      [](const Client&, std::optional<Lease>& lease) {
        const auto deadline = lease->deadline();
        while (lease->deadline() == deadline && !lease->lost().stop_requested()) std::this_thread::sleep_for(1ms);
      },
      [](const Client&, std::optional<Lease>& lease, bool) { EXPECT_FALSE(lease->lost().stop_requested()); });
}

TEST(OutOfMemory, ClosingTellsLossesAndReleases) {
  std::optional<Lease> lease;
  fail_each_allocation(
      Failing::nth_of_any_thread,
      [&](const Client& client) {
        Locks locks(make_memory_backend({.store = client.store}), silent());
        lease = locks.acquire("key");
        return locks;
      },
      [](const Client&, const Locks& locks) { locks.close(); },
      [&](const Client& client, const Locks&, bool) {
        EXPECT_TRUE(lease->lost().stop_requested());
        EXPECT_FALSE(client.store->stored("key"));
        lease.reset();
      });
}

TEST(OutOfMemory, ClientWithoutHandlesClosesAfterItsLastLeaseIsLost) {
  fail_each_allocation(
      Failing::nth_of_any_thread,
      [](const Client& client) {
        return Locks(make_memory_backend({.store = client.store}), silent()).acquire("key", {.ttl = 20ms});
      },
      [](const Client&, const Lease& lease) {
        while (!lease.lost().stop_requested()) std::this_thread::sleep_for(1ms);
        std::this_thread::sleep_for(10ms);
      },
      [](const Client&, const Lease&, bool threw) { EXPECT_FALSE(threw); });
}

TEST(OutOfMemory, LossIsToldWithoutMemory) {
  for (const bool renewed : {false, true}) {
    const Client client;
    const auto lease = client.locks.acquire("key", {.ttl = 200ms, .auto_extend = renewed});
    const auto other = client.locks.acquire("other", {.ttl = 210ms, .auto_extend = renewed});
    const FailingAllocations fail(Failing::everything, 0);
    ASSERT_FALSE(lease.lost().stop_requested()) << "this machine is too slow for this test";
    while (!lease.lost().stop_requested() || !other.lost().stop_requested()) std::this_thread::sleep_for(1ms);
  }
}

TEST(OutOfMemory, ClosingTellsLossesWithoutMemory) {
  const Client client;
  const auto lease = client.locks.acquire("key");
  {
    const FailingAllocations fail(Failing::everything, 0);
    client.locks.close();
  }
  EXPECT_TRUE(lease.lost().stop_requested());
}

}  // namespace
}  // namespace syncguard::testing
