// First steps: guard a section, try once, wait with a timeout, release by id.

#include <syncguard/syncguard.hpp>

#include <cstdio>

namespace sg = syncguard;
using namespace std::chrono_literals;

int main() {
  auto locks = sg::open("memory:");  // thread-safe, cheap to copy

  // 1. Guard a critical section: waits for the lock, renews it, and releases it in every exit path.
  const auto receipt = locks.with_lock("payment:42", {}, [](sg::Lease& lease) {
    // Send the fence to the store that you write to, and stop working when lease.lost() is signaled.
    return "charged under fence " + lease.fence().str();
  });
  std::puts(receipt.c_str());

  // 2. Try once.
  if (auto lease = locks.try_acquire("report:daily", {.ttl = 5min})) {
    std::puts("building the report");
    if (!lease->extend(5min)) return 1;  // false: the lock is lost; not an exception
  }                                      // released here

  // 3. Wait, with a timeout.
  sg::Lease lease = locks.acquire("import", {.wait = {.timeout = 10s}});

  // 4. Release by id, from any process.
  const sg::LockId id = lease.detach();
  std::printf("import is %s\n", locks.is_locked("import") ? "locked" : "free");
  locks.extend(id, 30s);
  locks.release(id);
  std::printf("import is %s\n", locks.is_locked("import") ? "locked" : "free");
}
