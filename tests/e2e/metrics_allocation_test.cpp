// Metrics allocate no memory while they count.

#include "e2e/faulty_client.hpp"
#include "support/is_granted.hpp"

#include <cstdlib>
#include <new>

namespace {

// Of this thread.
thread_local std::size_t allocations = 0;

void* allocate(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// Nothing in this program has a type with extended alignment, whose operators are not replaced.
void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t /*size*/) noexcept { std::free(memory); }

namespace syncguard::testing {
namespace {

// How often this thread allocates memory for operations with every outcome, after a first round.
std::size_t allocations_of(const Locks& locks) {
  const auto round = [&] {
    const Key key("a key that is too long for the small buffer of a string");
    auto lease = locks.acquire(key);
    EXPECT_FALSE(is_granted(locks.try_acquire(key)));
    EXPECT_TRUE(locks.is_locked(key));
    EXPECT_TRUE(locks.lookup(key));
    EXPECT_TRUE(lease.extend(60s));
    EXPECT_TRUE(locks.release(lease.id()));
    // Finds the lock gone: the lease is lost.
    EXPECT_FALSE(lease.release());
  };
  for (int i = 0; i < 10; ++i) round();
  const auto before = allocations;
  for (int i = 0; i < 100; ++i) round();
  return allocations - before;
}

TEST(MetricsAllocation, CountingAllocatesNothing) {
  const Log silent([](LogLevel, std::string_view) {});
  const Locks plain(make_memory_backend(), {.log = silent});
  const Metrics metrics;
  const Locks counted(make_memory_backend(), {.log = silent, .metrics = metrics});
  const auto with_metrics = allocations_of(counted);
  EXPECT_GT(with_metrics, 0U) << "an operation itself allocates, so the counter works";
  EXPECT_EQ(with_metrics, allocations_of(plain));
  EXPECT_EQ(metrics.snapshot().at(0).hold_duration.count, 110U);
}

}  // namespace
}  // namespace syncguard::testing
