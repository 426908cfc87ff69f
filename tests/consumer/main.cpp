// What a user's program looks like: both headers, one lock.

#include <syncguard/async.hpp>
#include <syncguard/syncguard.hpp>

#include <asio/use_future.hpp>

#include <cstdio>

namespace sg = syncguard;

int main() {
  auto locks = sg::open("memory:");
  const auto fence = locks.with_lock("key", {}, [](sg::Lease& lease) { return lease.fence(); });
  const sg::Lease lease = locks.async_acquire("key", {}, asio::use_future).get();
  std::printf("SyncGuard %s: fences %s and %s\n", SYNCGUARD_VERSION, fence.str().c_str(), lease.fence().str().c_str());
  return lease.fence() > fence ? 0 : 1;
}
