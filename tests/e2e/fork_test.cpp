// A client does not survive a fork: every call in the child fails immediately, and the parent is not affected.

#include "e2e/faulty_client.hpp"
#include "support/fork_when_idle.hpp"

#include <asio/co_spawn.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_future.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <functional>
#include <future>
#include <optional>

namespace syncguard::testing {
namespace {

// Runs a function in a forked child. The child exits with the function's result, and is killed after a minute. The
// function must not use test macros, because their failures would be lost in the child.
class Child {
 public:
  explicit Child(const std::function<int()>& function) : pid_(fork_when_idle()) {
    if (pid_ != 0) return;
    alarm(60);
    _exit(function());
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    (void)exit_code();
  }

  // Waits until the child has ended. Negative if it was killed.
  int exit_code() {
    if (pid_ <= 0) return code_;
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_;
  int code_ = -1;
};

bool is_rejection(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const LockError& refusal) {
    return refusal.code() == ErrorCode::invalid_argument;
  } catch (...) {
    return false;
  }
  return false;
}

bool is_refused(const std::function<void()>& call) {
  const auto error = error_of(call);
  return error && error->code() == ErrorCode::invalid_argument;
}

TEST(Fork, LeaseIsInertAndBlockingCallsAreRejectedInChild) {
  FaultyClient client;
  std::optional<Lease> lease = client.locks.acquire("key", {.auto_extend = true});
  Child child([&] {
    int failed = 0;
    if (*lease || lease->remaining() != 0ms || lease->deadline() != BootClock::time_point()) failed |= 1;
    if (!is_refused([&] { (void)lease->extend(1s); })) failed |= 2;
    if (!is_refused([&] { (void)lease->release(); })) failed |= 4;
    if (!is_refused([&] { (void)lease->detach(); })) failed |= 8;
    lease.reset();  // must neither hang nor release
    if (!is_refused([&] { (void)client.locks.is_locked("key"); })) failed |= 16;
    if (!is_refused([&] { client.locks.close(); })) failed |= 32;
    if (client.locks.admin().clock_skew()) failed |= 64;
    { const Locks last_copy = std::move(client.locks); }
    return failed;
  });
  EXPECT_EQ(child.exit_code(), 0);
  EXPECT_TRUE(client.locks.is_locked("key")) << "the parent must still hold the lock";
  EXPECT_TRUE(lease->release());
}

// Calls that start in the child must complete there, although the parent's threads do not exist in it.
TEST(Fork, AsyncCallsFailImmediatelyInChild) {
  FaultyClient client;
  auto lease = client.locks.acquire("key");
  Child child([&] {
    std::vector<std::promise<bool>> refused(5);
    client.locks.async_is_locked("key",
                                 [&](const std::exception_ptr& e, bool) { refused[0].set_value(is_rejection(e)); });
    lease.async_extend(1s, [&](const std::exception_ptr& e, bool) { refused[1].set_value(is_rejection(e)); });
    const auto section = [](Lease&) -> asio::awaitable<void> { co_return; };
    client.locks.async_with_lock("other", {}, section,
                                 [&](const std::exception_ptr& e) { refused[2].set_value(is_rejection(e)); });
    client.locks.async_close([&](const std::exception_ptr& e, bool) { refused[3].set_value(is_rejection(e)); });
    asio::io_context context;
    client.locks.async_acquire("key", {}, asio::bind_executor(context, [&](const std::exception_ptr& e, const Lease&) {
                                 refused[4].set_value(is_rejection(e));
                               }));
    context.run();
    for (std::size_t i = 0; i < refused.size(); ++i) {
      auto outcome = refused[i].get_future();
      if (outcome.wait_for(30s) != std::future_status::ready) return 10 + static_cast<int>(i);
      if (!outcome.get()) return 20 + static_cast<int>(i);
    }
    if (!is_refused([&] { (void)client.locks.async_is_locked("key", asio::use_future).get(); })) return 30;
    // The same in a grandchild.
    Child grandchild([&] {
      std::promise<bool> done;
      client.locks.async_is_locked("key", [&](const std::exception_ptr& e, bool) { done.set_value(is_rejection(e)); });
      auto outcome = done.get_future();
      return outcome.wait_for(30s) == std::future_status::ready && outcome.get() ? 0 : 1;
    });
    return grandchild.exit_code() == 0 ? 0 : 40;
  });
  EXPECT_EQ(child.exit_code(), 0);
  EXPECT_TRUE(lease.release());
}

// Lets two processes wait for each other.
class Turns {
 public:
  Turns() {
    if (pipe(pipes_[0].data()) != 0 || pipe(pipes_[1].data()) != 0) throw std::runtime_error("no pipe");
  }
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;
  ~Turns() {
    for (const auto& ends : pipes_) {
      for (const int end : ends) close(end);
    }
  }

  enum class Side { parent, child };
  void wake(Side side) { (void)!write(of(side)[1], "x", 1); }
  void wait_as(Side side) {
    char step = 0;
    (void)!read(of(side)[0], &step, 1);
  }

 private:
  std::array<int, 2>& of(Side side) { return pipes_[side == Side::parent ? 0 : 1]; }
  std::array<std::array<int, 2>, 2> pipes_{};
};

// As Asio requires, the context is notified of the fork. Both processes run it afterwards.
TEST(Fork, ChildThatRunsContextDoesNotAffectParentsLeases) {
  const auto store = std::make_shared<MemoryStore>();
  const FaultControl faults;
  asio::io_context context;
  std::atomic<int> renewals{0};
  ClientOptions options;
  options.callbacks.on_extended = [&](const ExtendContext&) { ++renewals; };
  auto locks = open_on(context.get_executor(), with_faults(make_memory_backend({.store = store}), faults), options);
  std::optional<Lease> renewed;
  std::optional<Lease> expiring;
  locks.async_acquire("renewed", {.ttl = 900ms, .auto_extend = true},
                      [&](const std::exception_ptr&, Lease lease) { renewed = std::move(lease); });
  locks.async_acquire("expiring", {.ttl = 2s},
                      [&](const std::exception_ptr&, Lease lease) { expiring = std::move(lease); });
  while (!renewed || !expiring) context.run_one_for(60s);

  // A waiter of the parent. Its copy in the child also wakes up.
  bool waiter_ended = false;
  locks.async_acquire("renewed", {.wait = {.timeout = 1s, .retry_delay = 50ms, .max_delay = 50ms}},
                      [&](const std::exception_ptr&, const Lease&) { waiter_ended = true; });
  context.run_for(20ms);

  Turns turns;
  context.notify_fork(asio::io_context::fork_prepare);
  Child child([&] {
    context.notify_fork(asio::io_context::fork_child);
    const auto acquires = faults.calls(Operation::acquire);
    const auto extends = faults.calls(Operation::extend);
    asio::steady_timer end(context, 4s);
    end.async_wait([&](const asio::error_code&) { context.stop(); });
    turns.wake(Turns::Side::parent);
    context.run();
    if (!waiter_ended) return 1;
    if (faults.calls(Operation::acquire) != acquires || faults.calls(Operation::extend) != extends) return 2;
    if (renewed->lost().stop_requested() || expiring->lost().stop_requested()) return 3;
    renewed.reset();
    expiring.reset();
    return 0;
  });
  context.notify_fork(asio::io_context::fork_parent);
  turns.wait_as(Turns::Side::parent);

  const int before = renewals;
  const auto end = steady_clock::now() + 4s;
  bool expired_in_time = false;
  while (steady_clock::now() < end) {
    context.restart();
    context.run_for(100ms);
    expired_in_time = expired_in_time || expiring->lost().stop_requested();
  }
  EXPECT_EQ(child.exit_code(), 0);
  EXPECT_GE(renewals - before, 3) << "the child must not take the parent's timer away";
  EXPECT_GT(renewed->remaining(), 0ms);
  EXPECT_TRUE(expired_in_time) << "lost() must fire although the child runs a copy of the scheduler";
  renewed.reset();
  expiring.reset();
  locks.async_close([](const std::exception_ptr&, bool) {});
  context.restart();
  context.run_for(5s);
}

}  // namespace
}  // namespace syncguard::testing
