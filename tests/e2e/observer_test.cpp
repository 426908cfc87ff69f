// The observer of `syncguard serve` and its event streams, on a store in this process.

#include "command/observer.hpp"

#include "command/event_stream.hpp"
#include "support/eventually.hpp"
#include "support/signal.hpp"

#include <syncguard/memory.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>

namespace syncguard::command {
namespace {

using namespace std::chrono_literals;
using syncguard::testing::eventually;
using syncguard::testing::Signal;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Observing : ::testing::Test {
  // Does not scan by itself after the first time: a task makes it scan at once.
  ObserverOptions options{.prefix = "", .interval = 1h, .diagnosis_interval = 1h, .can_break = false};
  Locks locks{make_memory_backend({})};
  std::atomic<int> events = 0;
  Observer observer{locks, options, [this] { ++events; }};

  std::string next(std::uint64_t& number) {
    std::optional<Observer::Event> event;
    EXPECT_TRUE(eventually([&] { return (event = observer.next_event(number)).has_value(); }));
    if (!event) return "";
    number = event->number;
    return *event->text;
  }
  // The latest state, after the first scan and the diagnosis.
  std::uint64_t after_start() {
    EXPECT_TRUE(eventually([&] { return events == 2; }));
    std::uint64_t number = 0;
    EXPECT_THAT(next(number), StartsWith("event: state\n"));
    return number;
  }
  void scan() {
    Signal done;
    EXPECT_TRUE(observer.post([&](const Locks&, const std::stop_token&) { done.set(); }));
    EXPECT_TRUE(done.wait_for(60s));
  }
};

TEST_F(Observing, StreamBeginsWithWholeStateAndContinuesWithUpdates) {
  auto number = after_start();
  EXPECT_FALSE(observer.next_event(number));
  const auto lease = locks.acquire("deploy");
  scan();
  const auto update = next(number);
  EXPECT_THAT(update, StartsWith("event: update\ndata: {"));
  EXPECT_THAT(update, HasSubstr("\"key\":\"deploy\""));
  EXPECT_THAT(update, HasSubstr(lease.fence().str()));
  EXPECT_THAT(update, Not(HasSubstr(lease.id().str())));
  EXPECT_FALSE(observer.next_event(number));
  // An event can be read before it is announced.
  EXPECT_TRUE(eventually([&] { return events == 3; }));
}

TEST_F(Observing, ViewerThatFellBehindGetsWholeState) {
  const auto first = after_start();
  for (int turn = 0; turn < 300; ++turn) {
    const auto lease = locks.acquire("key");
    const int before = events;
    scan();
    ASSERT_TRUE(eventually([&] { return events > before; }));
  }
  auto number = first;
  EXPECT_THAT(next(number), StartsWith("event: state\n"));
  EXPECT_FALSE(observer.next_event(number));
  // A viewer that is a little behind gets the events that it missed.
  auto late = number - 10;
  EXPECT_THAT(next(late), StartsWith("event: update\n"));
  EXPECT_EQ(late, number - 9);
}

struct Streaming : Observing {
  // The next block of the stream; empty if there is nothing to send.
  std::string read(EventStream::Clock::duration since_start = 0s) {
    std::array<char, 64> buffer{};
    return {buffer.data(), stream.read(observer, buffer, start + since_start)};
  }
  // The rest of the current event.
  std::string read_event() {
    std::string event = read();
    while (!stream.is_between_events()) event += read();
    return event;
  }

  const EventStream::Clock::time_point start = EventStream::Clock::now();
  EventStream stream{start};
};

TEST_F(Streaming, BeginsWithClockThenSendsStateInBlocks) {
  after_start();
  EXPECT_THAT(read(), StartsWith("event: clock\n"));
  EXPECT_FALSE(stream.is_between_events());
  EXPECT_THAT(read_event(), ::testing::AllOf(StartsWith("event: state\n"), ::testing::EndsWith("}\n\n")));
  EXPECT_EQ(read(), "");
}

TEST_F(Streaming, SendsHeartbeatsAndEndsAfterAnHour) {
  after_start();
  (void)read();
  (void)read_event();
  EXPECT_FALSE(stream.is_due(start + 9s));
  EXPECT_EQ(read(9s), "");
  EXPECT_TRUE(stream.is_due(start + 10s));
  EXPECT_THAT(read(10s), StartsWith("event: clock\n"));
  EXPECT_FALSE(stream.is_due(start + 19s));
  EXPECT_FALSE(stream.is_over(start + 59min));
  EXPECT_TRUE(stream.is_over(start + 1h));
}

TEST_F(Observing, ClosedClientIsAProblem) {
  auto number = after_start();
  EXPECT_EQ(observer.problem(), "");
  locks.close();
  scan();
  EXPECT_THAT(next(number), StartsWith("event: problem\n"));
  EXPECT_THAT(observer.problem(), Not(::testing::IsEmpty()));
  EXPECT_THAT(observer.metrics(), HasSubstr("syncguard_store_up{backend=\"memory\"} 0"));
}

TEST_F(Observing, TasksAreLimitedAndAllRunBeforeTheEnd) {
  after_start();
  Signal started;
  Signal go_on;
  std::atomic<int> ran = 0;
  ASSERT_TRUE(observer.post([&](const Locks&, const std::stop_token&) {
    started.set();
    EXPECT_TRUE(go_on.wait_for(60s));
  }));
  ASSERT_TRUE(started.wait_for(60s));
  int accepted = 0;
  while (accepted < 1000 && observer.post([&](const Locks&, const std::stop_token&) { ++ran; })) ++accepted;
  EXPECT_EQ(accepted, 16);
  go_on.set();
  observer.stop();
  EXPECT_EQ(ran, accepted);
  EXPECT_FALSE(observer.post([](const Locks&, const std::stop_token&) {}));
}

}  // namespace
}  // namespace syncguard::command
