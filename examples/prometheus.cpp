// Metrics for Prometheus: prints what a program serves at /metrics with its HTTP server.

#include <syncguard/syncguard.hpp>

#include <cstdio>
#include <thread>

namespace sg = syncguard;
using namespace std::chrono_literals;

int main() {
  const sg::Metrics metrics;
  const auto locks = sg::open("memory:", {.metrics = metrics});

  for (int i = 0; i < 10; ++i) locks.with_lock("report", {}, [] {});
  sg::Lease lease = locks.acquire("report");
  if (const auto taken = locks.try_acquire("report")) return 1;
  if (locks.release(sg::LockId::generate())) return 1;

  std::thread waiter([&] { locks.with_lock("report", {.wait = {.timeout = 1min}}, [] {}); });
  // The numbers are also there for the program itself.
  while (metrics.snapshot().front().callers_waiting == 0) std::this_thread::sleep_for(1ms);
  lease.release();
  waiter.join();

  // The answer to GET /metrics, with the type "text/plain; version=0.0.4; charset=utf-8".
  std::fputs(metrics.prometheus().c_str(), stdout);
}
