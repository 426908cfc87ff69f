#include "async/wake_up.hpp"

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>

#include <gtest/gtest.h>

#include <optional>

namespace syncguard::async {
namespace {

using Reason = WakeUp::Reason;

// What a wait ends with, if it ends by itself once the given thing was done.
template <typename Action>
std::optional<Reason> reason_after(Action action, std::stop_token stop = {}) {
  asio::io_context context;
  const auto wake_up = std::make_shared<WakeUp>();
  std::optional<Reason> reason;
  const auto wait = [&]() -> asio::awaitable<void> {
    reason = co_await wake_up->wait(std::chrono::steady_clock::time_point::max(), stop);
  };
  asio::co_spawn(context, wait(), asio::detached);
  context.poll();
  action(*wake_up);
  context.poll();
  return reason;
}

TEST(WakeUp, EndsTheWaitThatIsUnderWay) {
  EXPECT_EQ(reason_after([](WakeUp& wake_up) { wake_up.wake(); }), Reason::woken);
  EXPECT_EQ(reason_after([](WakeUp&) {}), std::nullopt);
}

TEST(WakeUp, IsLatchedForTheNextWaitAndForThatAlone) {
  asio::io_context context;
  const auto wake_up = std::make_shared<WakeUp>();
  wake_up->wake();
  std::vector<Reason> reasons;
  const auto wait = [&]() -> asio::awaitable<void> {
    reasons.push_back(co_await wake_up->wait(std::chrono::steady_clock::time_point::max(), {}));
    reasons.push_back(co_await wake_up->wait(std::chrono::steady_clock::time_point::min(), {}));
  };
  asio::co_spawn(context, wait(), asio::detached);
  context.run();
  EXPECT_EQ(reasons, (std::vector{Reason::woken, Reason::timed_out}));
}

TEST(WakeUp, IsEndedByAStop) {
  std::stop_source stop;
  EXPECT_EQ(reason_after([&](WakeUp&) { stop.request_stop(); }, stop.get_token()), Reason::stopped);
  EXPECT_EQ(reason_after([](WakeUp&) {}, stop.get_token()), Reason::stopped) << "also by one that came before";
}

TEST(WakeUp, MayBeWokenAfterTheContextWasDestroyedWithItsWait) {
  const auto wake_up = std::make_shared<WakeUp>();
  std::stop_source stop;
  {
    asio::io_context context;
    const auto wait = [&]() -> asio::awaitable<void> {
      co_await wake_up->wait(std::chrono::steady_clock::time_point::max(), stop.get_token());
    };
    asio::co_spawn(context, wait(), asio::detached);
    context.poll();
  }
  wake_up->wake();
  stop.request_stop();
}

}  // namespace
}  // namespace syncguard::async
