// g++ 12 destroys some temporaries twice inside a co_await expression. Options are trivially copyable, so that this is
// harmless. The address sanitizer would report a double free.

#include "e2e/faulty_client.hpp"

#include <asio/co_spawn.hpp>
#include <asio/io_context.hpp>
#include <asio/use_future.hpp>

namespace syncguard::testing {
namespace {

TEST(OptionsInCoroutines, CanBeWrittenInsideCoAwait) {
  auto locks = open("memory:");
  asio::io_context context;
  const auto script = [&]() -> asio::awaitable<int> {
    int done = 0;
    const std::string long_key(200, 'k');  // on the heap, so that a double free is detected
    // A lambda with captures must be declared before the expression, as the documentation says.
    const auto section = [long_key](Lease& held) -> asio::awaitable<int> {
      co_return held.key().str() == long_key ? 1 : 0;
    };
    for (int i = 0; i < 10; ++i) {
      auto lease = co_await locks.async_acquire(long_key + std::to_string(i),
                                                {.ttl = 30s, .auto_extend = true, .wait = {.timeout = 10s}},
                                                asio::use_awaitable);
      if (co_await lease.async_extend(5s, asio::use_awaitable)) ++done;
      const auto second =
          co_await locks.async_try_acquire(long_key + std::to_string(i), {.ttl = 1s}, asio::use_awaitable);
      if (!second) ++done;
      done += co_await locks.async_with_lock(long_key, {.ttl = 1s}, section, asio::use_awaitable);
      if (co_await lease.async_release(asio::use_awaitable)) ++done;
    }
    co_return done;
  };
  auto result = asio::co_spawn(context, script(), asio::use_future);
  context.run();
  EXPECT_EQ(result.get(), 40);
}

}  // namespace
}  // namespace syncguard::testing
