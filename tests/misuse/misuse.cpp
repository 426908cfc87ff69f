// Mistakes that must not compile. Each block has a macro, the mistake with the beginning of the expected message, and
// the right form, which the build compiles. Misuse.* compile this file once for each macro.

#ifdef OTHER_ASIO
#define ASIO_VERSION_HPP
#define ASIO_VERSION 103600  // error: SyncGuard was built with Asio [0-9]+ and is used with Asio 103600
#else
#endif

// Compiled as C++17.
#ifdef OLD_STANDARD
// error: .SyncGuard needs C\+\+20
#else
#endif

#ifdef NO_ASYNC_HEADER
// error: asynchronous calls need #include <syncguard/async.hpp>
#else
#include <syncguard/async.hpp>
#endif
#include <syncguard/syncguard.hpp>

#include <asio/awaitable.hpp>
#include <asio/use_awaitable.hpp>

#include <chrono>
#include <coroutine>
#include <cstddef>
#include <string>
#include <utility>

namespace syncguard::testing {

using namespace std::chrono_literals;

void work();
asio::awaitable<void> work_later(Lease& lease);
asio::awaitable<void> work_on(const std::string& name, Lease& lease);

// An awaitable of another library.
struct Task {
  struct Awaiter {
    static bool await_ready() noexcept { return true; }
    static void await_suspend(std::coroutine_handle<>) noexcept {}
    static void await_resume() noexcept {}
  };
};
inline Task::Awaiter operator co_await(Task) noexcept { return {}; }
Task start_task();

void if_try_acquire(const Locks& locks) {
#ifdef IF_TRY_ACQUIRE
  if (locks.try_acquire("key")) work();  // error: this lease is temporary, so its lock is released at once
#else
  if (auto lease = locks.try_acquire("key")) work();
#endif
}

void if_not_try_acquire(const Locks& locks) {
#ifdef IF_NOT_TRY_ACQUIRE
  if (!locks.try_acquire("key")) return;  // error: this lease is temporary, so its lock is released at once
  work();
#else
  auto lease = locks.try_acquire("key");
  if (!lease) return;
  work();
#endif
}

void has_value_of_try_acquire(const Locks& locks) {
#ifdef HAS_VALUE_OF_TRY_ACQUIRE
  if (locks.try_acquire("key").has_value()) work();  // error: this lease is temporary, so its lock is released at once
#else
  const auto lease = locks.try_acquire("key");
  if (lease.has_value()) work();
#endif
}

asio::awaitable<void> if_async_try_acquire(const Locks& locks) {
#ifdef IF_ASYNC_TRY_ACQUIRE
  if (co_await locks.async_try_acquire("key", {}, asio::use_awaitable))  // error: this lease is temporary
    work();
#else
  if (auto lease = co_await locks.async_try_acquire("key", {}, asio::use_awaitable)) work();
#endif
}

void if_acquire(const Locks& locks) {
#ifdef IF_ACQUIRE
  if (locks.acquire("key")) work();  // error: this lease is temporary, so its lock is released at once
#else
  if (auto lease = locks.acquire("key")) work();
#endif
}

asio::awaitable<void> with_lock_of_coroutine(const Locks& locks) {
#ifdef WITH_LOCK_OF_COROUTINE
  co_await locks.with_lock("key", {}, work_later);  // error: use async_with_lock, and co_await it
#else
  co_await locks.async_with_lock("key", {}, work_later, asio::use_awaitable);
#endif
}

void with_lock_of_task(const Locks& locks) {
#ifdef WITH_LOCK_OF_TASK
  (void)locks.with_lock("key", {}, start_task);  // error: use async_with_lock, and co_await it
#else
  locks.with_lock("key", {}, work);
#endif
}

asio::awaitable<void> section_that_returns_nothing(const Locks& locks) {
#ifdef SECTION_THAT_RETURNS_NOTHING
  co_await locks.async_with_lock("key", {}, work, asio::use_awaitable);  // error: returns an asio::awaitable
#else
  co_await locks.async_with_lock("key", {}, work_later, asio::use_awaitable);
#endif
}

void section_with_other_argument(const Locks& locks) {
#ifdef SECTION_WITH_OTHER_ARGUMENT
  locks.with_lock("key", {}, [](int) {});  // error: the function of with_lock takes a Lease&, or nothing
#else
  locks.with_lock("key", {}, [](Lease&) {});
#endif
}

// Only g++ 12 and older destroy it twice.
asio::awaitable<void> temporary_closure(const Locks& locks, std::string name) {
#ifdef TEMPORARY_CLOSURE
  co_await locks.async_with_lock(  // error: g\+\+ 12 would destroy this closure twice
      "key", {}, [name](Lease& lease) { return work_on(name, lease); }, asio::use_awaitable);
#else
  const auto section = [name](Lease& lease) { return work_on(name, lease); };
  co_await locks.async_with_lock("key", {}, section, asio::use_awaitable);
#endif
}

void null_key(const Locks& locks) {
#ifdef NULL_KEY
  (void)locks.is_locked(nullptr);  // error: use of deleted function|call to deleted
#else
  (void)locks.is_locked("key");
#endif
}

void bare_number(const Locks& locks) {
#ifdef BARE_NUMBER
  (void)locks.acquire("key", {.ttl = 30});  // error: a duration needs a unit: write 30s
#else
  (void)locks.acquire("key", {.ttl = 30s});
#endif
}

void bare_number_in_wait(const Locks& locks) {
#ifdef BARE_NUMBER_IN_WAIT
  locks.with_lock("key", {.wait = {.timeout = 10}}, work);  // error: a duration needs a unit: write 30s
#else
  locks.with_lock("key", {.wait = {.timeout = 10s}}, work);
#endif
}

void unknown_option(const Locks& locks) {
#ifdef UNKNOWN_OPTION
  (void)locks.try_acquire("key", {.tll = 30s});  // error: syncguard::v0_1::TryOptions|did you mean 'ttl'
#else
  (void)locks.try_acquire("key", {.ttl = 30s});
#endif
}

void options_of_acquire(const Locks& locks) {
#ifdef OPTIONS_OF_ACQUIRE
  (void)locks.try_acquire("key", AcquireOptions{});  // error: .*(convert|conversion).* .*TryOptions
#else
  (void)locks.try_acquire("key", TryOptions{});
#endif
}

// Everything else works as with std::optional<Lease>.
std::optional<Lease> other_uses(const Locks& locks) {
  std::optional<Lease> kept;
  kept = locks.try_acquire("key");
  Lease taken = locks.try_acquire("key").value();
  auto result = locks.try_acquire("key");
  if (result) taken = *std::move(result);
  result = std::nullopt;
  result = locks.try_acquire("key");
  if (const auto& view = result; view.has_value()) (void)(view->fence() == (*view).fence());
  if (auto lease = locks.try_acquire("key"); lease && lease->remaining().count() > 0) return lease;
  return std::nullopt;
}

}  // namespace syncguard::testing
