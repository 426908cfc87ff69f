// Canceling async_with_lock and async_watch, which run code of the caller between requests.

#include "e2e/faulty_client.hpp"

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>

#include <exception>
#include <functional>
#include <system_error>

namespace syncguard::testing {
namespace {

using asio::cancellation_type;

constexpr cancellation_type every_type[] = {cancellation_type::terminal, cancellation_type::partial,
                                            cancellation_type::total};

// A client on a context of its own, where the test decides when each step of an operation runs.
struct CanceledClient {
  FaultControl faults;
  std::shared_ptr<MemoryStore> store = std::make_shared<MemoryStore>();
  asio::io_context context;
  Locks locks = open_on(context.get_executor(), with_faults(make_memory_backend({.store = store}), faults));
  asio::cancellation_signal signal;
  bool done = false;
  std::exception_ptr outcome;

  CanceledClient() = default;
  CanceledClient(const CanceledClient&) = delete;
  CanceledClient& operator=(const CanceledClient&) = delete;
  ~CanceledClient() {
    locks.close();
    context.restart();
    context.run();
  }

  // Of the operation that signal cancels.
  auto token() {
    return asio::bind_cancellation_slot(signal.slot(), [this](std::exception_ptr error) {
      done = true;
      outcome = std::move(error);
    });
  }
  void run_until(const std::function<bool()>& condition) {
    context.restart();
    while (!condition() && context.run_one() != 0) continue;
    ASSERT_TRUE(condition());
  }
  void run_until_done() {
    run_until([this] { return done; });
  }
  // Returns false if the operation has completed before.
  bool run_steps(int count) {
    context.restart();
    for (int i = 0; i < count && !done; ++i) context.run_one();
    return !done;
  }
  void expect_aborted() const {
    ASSERT_TRUE(outcome);
    expect_error(ErrorCode::aborted, [this] { std::rethrow_exception(outcome); });
  }
};

TEST(Cancellation, EveryTypeEndsWaitForSection) {
  for (const auto type : every_type) {
    CanceledClient client;
    const Locks holder(make_memory_backend({.store = client.store}));
    const auto held = holder.acquire("key", {.ttl = 1h});
    bool ran = false;
    const auto section = [&ran](Lease&) -> asio::awaitable<void> {
      ran = true;
      co_return;
    };
    client.locks.async_with_lock("key", {.wait = {.timeout = WaitOptions::no_timeout}}, section, client.token());
    client.run_until([&] { return client.faults.calls(Operation::join) != 0; });
    client.signal.emit(type);
    client.run_until_done();
    client.expect_aborted();
    EXPECT_FALSE(ran);
  }
}

TEST(Cancellation, SectionRunsOrIsAbortedAtEveryStep) {
  for (const auto type : every_type) {
    int steps = 0;
    for (bool pending = true; pending; ++steps) {
      CanceledClient client;
      bool ran = false;
      const auto section = [&ran](Lease&) -> asio::awaitable<void> {
        ran = true;
        co_return;
      };
      client.locks.async_with_lock("key", {}, section, client.token());
      pending = client.run_steps(steps);
      client.signal.emit(type);
      client.run_until_done();
      if (ran) {
        EXPECT_FALSE(client.outcome) << steps;
      } else {
        client.expect_aborted();
      }
      EXPECT_FALSE(client.store->stored("key")) << steps;
    }
    EXPECT_GT(steps, 2);
  }
}

TEST(Cancellation, EveryTypeReachesSection) {
  for (const auto type : every_type) {
    CanceledClient client;
    bool waits = false;
    const auto section = [&waits](Lease&) -> asio::awaitable<void> {
      asio::steady_timer timer(co_await asio::this_coro::executor, 1h);
      waits = true;
      co_await timer.async_wait(asio::use_awaitable);
    };
    client.locks.async_with_lock("key", {.ttl = 1h}, section, client.token());
    client.run_until([&] { return waits; });
    EXPECT_TRUE(client.store->stored("key"));
    client.signal.emit(type);
    client.run_until_done();
    // An error of the section, which it could also handle.
    ASSERT_TRUE(client.outcome);
    EXPECT_THROW(std::rethrow_exception(client.outcome), std::system_error);
    EXPECT_FALSE(client.store->stored("key"));
  }
}

TEST(Cancellation, EveryTypeEndsWatch) {
  for (const auto type : every_type) {
    CanceledClient client;
    int calls = 0;
    client.locks.admin().async_watch(
        "key", {.interval = 1h}, [&](const KeyState&) { ++calls; }, client.token());
    client.run_until([&] { return calls == 1; });
    client.signal.emit(type);
    client.run_until_done();
    client.expect_aborted();
    EXPECT_EQ(calls, 1);
  }
}

TEST(Cancellation, WatchIsAbortedAtEveryStep) {
  for (const auto type : every_type) {
    for (int steps = 0; steps < 10; ++steps) {
      CanceledClient client;
      bool canceled = false;
      const auto callback = [&](const KeyState&) { EXPECT_FALSE(canceled) << steps; };
      client.locks.admin().async_watch("key", {.interval = 1ms}, callback, client.token());
      ASSERT_TRUE(client.run_steps(steps));
      canceled = true;
      client.signal.emit(type);
      client.run_until_done();
      client.expect_aborted();
    }
  }
}

TEST(Cancellation, CallbackCancelsItsWatch) {
  CanceledClient client;
  int calls = 0;
  client.locks.admin().async_watch(
      "key", {.interval = 1ms},
      [&](const KeyState&) {
        ++calls;
        client.signal.emit(cancellation_type::all);
      },
      client.token());
  client.run_until_done();
  client.expect_aborted();
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace syncguard::testing
