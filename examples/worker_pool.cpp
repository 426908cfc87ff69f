// A pool of workers that acquire asynchronously: coroutines on the caller's io_context, without an I/O thread of the
// library and without a thread per worker. One worker at a time works on an account; different accounts are processed
// concurrently.

#include <syncguard/async.hpp>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include <array>
#include <cstdio>
#include <exception>
#include <string>

namespace sg = syncguard;
using namespace std::chrono_literals;

namespace {

constexpr int workers = 8;
constexpr std::size_t accounts = 3;
constexpr int rounds = 5;

// All coroutines run on the single thread of the io_context, so plain variables are sufficient.
struct Pool {
  std::array<int, accounts> inside{};
  int done = 0;
  int collisions = 0;
  int failures = 0;
  int running = workers;
};

asio::awaitable<void> work_on(Pool& pool, std::size_t account) {
  if (++pool.inside.at(account) != 1) ++pool.collisions;
  asio::steady_timer timer(co_await asio::this_coro::executor, 1ms);  // instead of requests to other servers
  co_await timer.async_wait(asio::use_awaitable);
  --pool.inside.at(account);
  ++pool.done;
}

asio::awaitable<void> worker(sg::Locks locks, Pool& pool) {
  try {
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t account = 0; account < accounts; ++account) {
        // Declared before the co_await: inside one, g++ 12 destroys closures that capture by value twice.
        auto section = [&pool, account](sg::Lease&) { return work_on(pool, account); };
        const sg::Key key = "account:" + std::to_string(account);
        co_await locks.async_with_lock(key, {.ttl = 10s, .wait = {.timeout = 30s}}, section, asio::use_awaitable);
      }
    }
  } catch (const sg::LockError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    ++pool.failures;
  }
  // The last worker closes the client. Until then, a client reads from its connections, and run() would not return.
  if (--pool.running == 0) co_await locks.async_close(asio::use_awaitable);
}

}  // namespace

int main() {
  asio::io_context context;
  Pool pool;
  {
    auto locks = sg::open_on(context.get_executor(), "memory:");
    for (int i = 0; i < workers; ++i) asio::co_spawn(context, worker(locks, pool), asio::detached);
  }
  context.run();
  std::printf("%d sections on %zu accounts by %d workers, %d collisions\n", pool.done, accounts, workers,
              pool.collisions);
  return pool.done == workers * rounds * static_cast<int>(accounts) && pool.collisions == 0 && pool.failures == 0 ? 0
                                                                                                                  : 1;
}
