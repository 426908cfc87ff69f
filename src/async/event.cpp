#include "async/event.hpp"

#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/steady_timer.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace syncguard::async {
namespace {

using std::chrono::steady_clock;

// Longer than any process runs, and short enough that Asio's time arithmetic does not overflow.
constexpr std::chrono::hours never{24 * 365 * 10};

}  // namespace

struct Event::State {
  // Resumes the waiting coroutine.
  using Resume = asio::async_result<asio::use_awaitable_t<>, void()>::handler_type;

  // Lives in the frame of the waiting coroutine.
  struct Waiter {
    void end(WaitResult why) {
      result = why;
      timer.cancel();
    }
    Resume take_resume() {
      Resume taken = std::move(*resume);
      resume.reset();
      return taken;
    }

    asio::steady_timer timer;
    WaitResult result = WaitResult::timed_out;
    std::optional<Resume> resume{};
    bool is_starting = false;
    bool out_of_memory = false;
  };

  // The handler of the timer. The waiter keeps the function that resumes the coroutine, so that it is still there if
  // there is no memory to start the timer.
  class TimerEnded {
   public:
    using executor_type = asio::associated_executor_t<Resume>;

    explicit TimerEnded(Waiter& waiter) : waiter_(&waiter), executor_(asio::get_associated_executor(*waiter.resume)) {}
    TimerEnded(TimerEnded&& other) noexcept
        : waiter_(std::exchange(other.waiter_, nullptr)), executor_(std::move(other.executor_)) {}
    TimerEnded& operator=(TimerEnded&&) = delete;
    ~TimerEnded() {
      // The coroutine ends together with its context.
      if (waiter_ != nullptr && !waiter_->is_starting) (void)waiter_->take_resume();
    }

    void operator()(const asio::error_code& /*canceled*/) { std::exchange(waiter_, nullptr)->take_resume()(); }
    [[nodiscard]] const executor_type& get_executor() const noexcept { return executor_; }

   private:
    Waiter* waiter_;
    executor_type executor_;
  };

  std::mutex mutex;
  std::condition_variable changed;
  bool set = false;
  std::vector<Waiter*> waiters;
};

Event::Event() : state_(std::make_shared<State>()) {}

void Event::set() const noexcept {
  const std::lock_guard lock(state_->mutex);
  state_->set = true;
  for (auto* waiter : state_->waiters) {
    if (waiter->result == WaitResult::timed_out) waiter->end(WaitResult::set);
  }
  state_->changed.notify_all();
}

void Event::reset() const noexcept {
  const std::lock_guard lock(state_->mutex);
  state_->set = false;
}

bool Event::is_set() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->set;
}

bool Event::wait_blocking(steady_clock::time_point until) const {
  const auto state = state_;
  std::unique_lock lock(state->mutex);
  return state->changed.wait_until(lock, until, [&] { return state->set; });
}

asio::awaitable<WaitResult> Event::wait(steady_clock::time_point until, std::stop_token stop) const {
  return wait_for(state_, until, std::move(stop));
}

asio::awaitable<WaitResult> Event::wait_for(std::shared_ptr<State> state, steady_clock::time_point until,
                                            std::stop_token stop) {
  {
    const std::lock_guard lock(state->mutex);
    if (stop.stop_requested()) co_return WaitResult::stopped;
    if (state->set) co_return WaitResult::set;
  }
  const auto wait_executor = co_await asio::this_coro::executor;
  State::Waiter waiter{asio::steady_timer(wait_executor, std::min(until, steady_clock::now() + never))};
  {
    // Not in start_waiting below: Asio ends the process if that throws, and this allocates.
    const std::lock_guard lock(state->mutex);
    state->waiters.push_back(&waiter);
  }
  // A destructor, because the wait may also end by the destruction of the coroutine together with its context.
  // Afterwards set(), which may be running on another thread, must not use the timer.
  const struct Unregister {
    State& state;
    State::Waiter& waiter;
    ~Unregister() {
      const std::lock_guard lock(state.mutex);
      std::erase(state.waiters, &waiter);
    }
  } unregister{*state, waiter};
  {
    const std::stop_callback on_stop(stop, [&] {
      const std::lock_guard lock(state->mutex);
      waiter.end(WaitResult::stopped);
    });
    // The mutex makes "already set?" and "start to wait" one step; a timer alone is not thread-safe. The copy keeps the
    // mutex alive if the coroutine ends on another thread before this function returns. Asio ends the process if this
    // function throws.
    auto start_waiting = [&](State::Resume resume) noexcept {
      const auto owner = state;  // NOLINT(performance-unnecessary-copy-initialization): see above
      // The coroutine may resume on another thread as soon as the timer runs. It destroys this function's captures at
      // once, but not the waiter, which it needs the mutex for.
      auto& started = waiter;
      std::unique_lock lock(owner->mutex);
      if (owner->set && started.result != WaitResult::stopped) started.result = WaitResult::set;
      started.resume.emplace(std::move(resume));
      started.is_starting = true;
      try {
        started.timer.async_wait(State::TimerEnded(started));
      } catch (const std::bad_alloc&) {
        started.out_of_memory = true;
      }
      started.is_starting = false;
      if (started.out_of_memory) {
        auto resume_now = started.take_resume();
        lock.unlock();
        std::move(resume_now)();
      } else if (started.result != WaitResult::timed_out) {
        started.timer.cancel();
      }
    };
    co_await asio::async_initiate<const asio::use_awaitable_t<>&, void()>(start_waiting, asio::use_awaitable);
  }
  const std::lock_guard lock(state->mutex);
  if (waiter.out_of_memory) throw std::bad_alloc();
  co_return waiter.result;
}

asio::awaitable<void> Event::wait(CallLimits limits, const char* timeout_message, Effect effect) const {
  const auto result = co_await wait(limits.deadline, limits.stop);
  if (result != WaitResult::set) throw_ended(result, timeout_message, effect);
}

asio::awaitable<WaitResult> sleep_until(steady_clock::time_point until, std::stop_token stop) {
  return Event().wait(until, std::move(stop));
}

void throw_ended(WaitResult result, const std::string& timeout_message, Effect effect) {
  if (result == WaitResult::stopped) throw LockError(ErrorCode::aborted, "a stop was requested", effect);
  throw LockError(ErrorCode::network_timeout, timeout_message, effect);
}

}  // namespace syncguard::async
