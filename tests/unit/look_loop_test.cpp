#include "backends/look_loop.hpp"

#include <asio/io_context.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <optional>
#include <vector>

namespace syncguard::backends {
namespace {

using namespace std::chrono_literals;

struct LookLoopTest : ::testing::Test {
  // Adds a waiter that looks at once, and starts the loop.
  LockId join() {
    const auto id = LockId::generate();
    loop->waiters().add(id, {.key = "key", .wake = [] {}});
    start(id);
    return id;
  }
  void start(const LockId& id) {
    loop->waiters().joined(id, {.free_in = 0ms, .is_first = true}, 50ms);
    loop->start(context->get_executor(), [this](std::vector<Waiters::Look> due) { return look(std::move(due)); });
  }
  asio::awaitable<void> look(std::vector<Waiters::Look> due) {
    looks += due.size();
    if (std::exchange(fails, false)) throw std::bad_alloc();
    for (const auto& each : due) {
      if (looks < 3) {
        loop->waiters().looked(each.id, {.free_in = 0ms, .is_first = true});
      } else {
        loop->waiters().remove(each.id);
      }
    }
    co_return;
  }

  std::optional<asio::io_context> context{std::in_place};
  std::shared_ptr<LookLoop> loop = std::make_shared<LookLoop>(Waiters::Pace{}, 64);
  std::size_t looks = 0;
  bool fails = false;
};

TEST_F(LookLoopTest, EndsAfterItsLastWaiterAndStartsAgainWithTheNext) {
  join();
  context->run();
  EXPECT_EQ(looks, 3U);
  join();
  context->restart();
  context->run();
  EXPECT_EQ(looks, 4U);
}

TEST_F(LookLoopTest, StartsAgainAfterMemoryRanOut) {
  fails = true;
  const auto id = join();
  context->run();
  EXPECT_EQ(looks, 1U);
  EXPECT_LE(loop->waiters().next_look(), Waiters::Clock::now() + 300ms) << "the look is repeated";
  start(id);
  context->restart();
  context->run();
  EXPECT_EQ(looks, 3U);
}

TEST_F(LookLoopTest, StartsAgainInAnotherContext) {
  const auto id = join();
  context.emplace();
  start(id);
  context->run();
  EXPECT_EQ(looks, 3U);
}

TEST_F(LookLoopTest, CloseEndsIt) {
  join();
  loop->close();
  context->run();
  EXPECT_EQ(looks, 0U);
}

}  // namespace
}  // namespace syncguard::backends
