// A typical program: both headers, one lock, and the program's own io_context.

#include <syncguard/async.hpp>
#include <syncguard/syncguard.hpp>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/use_future.hpp>

#include <chrono>
#include <cstdio>
#include <thread>

namespace sg = syncguard;
using namespace std::chrono_literals;

namespace {

// The library's timers run in the program's context.
bool waits_in_own_context() {
  asio::io_context context;
  auto work = asio::make_work_guard(context);
  std::jthread thread([&context] { context.run(); });
  auto locks = sg::open_on(context.get_executor(), "memory:");
  const auto held = locks.async_try_acquire("key", {}, asio::use_future).get();
  bool timed_out = false;
  try {
    sg::AcquireOptions options;
    options.wait.timeout = 50ms;
    (void)locks.async_acquire("key", options, asio::use_future).get();
  } catch (const sg::LockError& error) {
    timed_out = error.code() == sg::ErrorCode::acquisition_timeout;
  }
  locks.async_close(asio::use_future).get();
  work.reset();
  return held && timed_out;
}

}  // namespace

int main() {
  auto locks = sg::open("memory:");
  const auto fence = locks.with_lock("key", {}, [](sg::Lease& lease) { return lease.fence(); });
  const sg::Lease lease = locks.async_acquire("key", {}, asio::use_future).get();
  std::printf("SyncGuard %s: fences %s and %s\n", SYNCGUARD_VERSION, fence.str().c_str(), lease.fence().str().c_str());
  return lease.fence() > fence && waits_in_own_context() ? 0 : 1;
}
