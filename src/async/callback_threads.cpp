#include "async/callback_threads.hpp"

#include "async/event.hpp"
#include "os/descriptor.hpp"
#include "os/threads.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <new>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace syncguard::async {
namespace {

using std::chrono::steady_clock;

// How long the destructor waits for threads that should be idle.
constexpr std::chrono::milliseconds grace{100};

// How long a function may sleep before the next one is run by another thread. Halved each time that happens, so that
// many functions that block one after the other delay the last one by milliseconds only.
constexpr std::chrono::microseconds max_wait_before_growth{4000};
constexpr std::chrono::microseconds min_wait_before_growth{100};
// The same for a function that is runnable: it computes, or waits for a processor.
constexpr std::chrono::milliseconds max_run_before_growth{100};

// One thread to run the next function, and one to stand by then.
constexpr std::size_t max_standing_by = 2;

// Whether the system would let the thread run: it is neither asleep nor stopped. False if the state cannot be read.
// Needs no memory, like everything that tells a loss.
bool is_runnable(pid_t thread) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/stat", static_cast<int>(thread));
  const os::Descriptor file(open(path, O_RDONLY | O_CLOEXEC));
  char text[128];
  const auto size = file.get() < 0 ? -1 : read(file.get(), text, sizeof text);
  // The state follows the name, which is in parentheses and may itself contain parentheses.
  const std::string_view status(text, static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  const auto name_end = status.rfind(") ");
  return name_end != std::string_view::npos && name_end + 2 < status.size() && status[name_end + 2] == 'R';
}

}  // namespace

// Shared with the threads, which may outlive their owner: a callback may block forever, or may itself destroy the
// owner.
struct CallbackThreads::State : std::enable_shared_from_this<State> {
  // A thread that runs functions.
  struct Runner {
    pid_t id;
    steady_clock::time_point began{};  // when the current function started
  };

  std::string name;
  Growth growth = Growth::none;
  std::function<void()> starved;

  std::mutex mutex;
  std::condition_variable changed;
  // The queue.
  std::shared_ptr<Callback> first;
  Callback* last = nullptr;
  std::size_t queued = 0;
  std::vector<std::thread> threads;
  Runner* runner = nullptr;     // will take the next function; null if no function runs, or all running ones block
  std::size_t standing_by = 0;  // threads that wait for functions, or for the runner to block
  std::uint64_t begun = 0;
  std::chrono::microseconds wait_before_growth = max_wait_before_growth;
  std::size_t busy = 0;
  std::size_t ended = 0;  // threads that have ended since finish()
  bool finishing = false;
  const Event idle;  // set while no function is queued or running

  // All functions below require the mutex.

  void update_idle() {
    if (queued == 0 && busy == 0) idle.set();
  }

  void push(std::shared_ptr<Callback> callback) noexcept {
    auto* const added = callback.get();
    (last == nullptr ? first : last->next_) = std::move(callback);
    last = added;
    ++queued;
  }

  std::shared_ptr<Callback> pop() noexcept {
    auto callback = std::move(first);
    first = std::move(callback->next_);
    if (first == nullptr) last = nullptr;
    --queued;
    return callback;
  }

  void start() {
    threads.reserve(threads.size() + 1);  // before there is a thread that must be stored
    threads.push_back(os::start_thread(name, [self = shared_from_this()] { self->run(); }));
    ++standing_by;
  }

  // If the system cannot start another thread, functions wait for an existing one.
  bool start_if_possible() noexcept {
    try {
      start();
      return true;
    } catch (const std::system_error&) {
      return false;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  // Called by a thread that stands by. Waits until that thread has to run a function. Returns false if there will be
  // none.
  bool wait_for_function(std::unique_lock<std::mutex>& lock) {
    for (;;) {
      changed.wait(lock, [this] { return finishing || queued != 0; });
      if (queued == 0) return false;
      if (runner == nullptr) return true;
      const auto seen = begun;
      const bool progress =
          changed.wait_for(lock, wait_before_growth, [&] { return queued == 0 || runner == nullptr || begun != seen; });
      if (!progress && runner_is_blocked()) {
        wait_before_growth = std::max(wait_before_growth / 2, min_wait_before_growth);
        return true;
      }
    }
  }

  [[nodiscard]] bool runner_is_blocked() const {
    return steady_clock::now() - runner->began > max_run_before_growth || !is_runnable(runner->id);
  }

  void run_next(std::unique_lock<std::mutex>& lock) {
    auto callback = pop();
    ++begun;
    ++busy;
    lock.unlock();
    try {
      callback->run();
    } catch (...) {  // NOLINT(bugprone-empty-catch): by contract
    }
    callback = nullptr;
    lock.lock();
    --busy;
    update_idle();
    if (queued == 0) changed.notify_all();
  }

  void run() {
    Runner self{gettid()};
    std::unique_lock lock(mutex);
    // Every thread starts by standing by.
    while (wait_for_function(lock)) {
      --standing_by;
      runner = &self;
      do {
        self.began = steady_clock::now();
        if (growth == Growth::while_blocked && standing_by == 0 && !start_if_possible() && starved) {
          lock.unlock();
          starved();
          lock.lock();
          if (queued == 0) break;
        }
        run_next(lock);
        if (runner == &self) wait_before_growth = max_wait_before_growth;
      } while (runner == &self && queued != 0);
      if (runner == &self) runner = nullptr;
      ++standing_by;
      // This thread ends if enough others stand by.
      if (standing_by > max_standing_by) break;
    }
    --standing_by;
    if (finishing) {
      // The destructor joins this thread.
      ++ended;
      changed.notify_all();
      return;
    }
    const auto own = std::ranges::find(threads, std::this_thread::get_id(), &std::thread::get_id);
    own->detach();
    threads.erase(own);
  }

  [[nodiscard]] bool is_this_thread() const {
    return std::ranges::find(threads, std::this_thread::get_id(), &std::thread::get_id) != threads.end();
  }
};

CallbackThreads::CallbackThreads(std::string name, Growth growth, std::function<void()> starved)
    : state_(std::make_shared<State>()) {
  state_->name = std::move(name);
  state_->growth = growth;
  state_->starved = std::move(starved);
  state_->idle.set();
  if (growth == Growth::none) return;
  const std::lock_guard lock(state_->mutex);
  try {
    while (state_->standing_by < max_standing_by) state_->start();
  } catch (...) {
    state_->finishing = true;
    state_->changed.notify_all();
    for (auto& thread : state_->threads) thread.detach();
    throw;
  }
}

CallbackThreads::~CallbackThreads() {
  finish(QueuedFunctions::run);
  std::unique_lock lock(state_->mutex);
  const bool own_thread = state_->is_this_thread();
  const auto all_ended = [this] { return state_->ended >= state_->threads.size(); };
  const bool joinable = !own_thread && state_->changed.wait_for(lock, grace, all_ended);
  auto threads = std::move(state_->threads);
  lock.unlock();
  for (auto& thread : threads) {
    if (joinable) {
      thread.join();
    } else {
      thread.detach();
    }
  }
}

CallbackThreads::Posted CallbackThreads::post(std::function<void()> function, std::size_t capacity) {
  class Function final : public Callback {
   public:
    explicit Function(std::function<void()> function) : function_(std::move(function)) {}

   private:
    void run() override { function_(); }

    const std::function<void()> function_;
  };
  return post(std::make_shared<Function>(std::move(function)), capacity);
}

CallbackThreads::Posted CallbackThreads::post(std::shared_ptr<Callback> callback, std::size_t capacity) noexcept {
  const std::lock_guard lock(state_->mutex);
  if (state_->finishing || state_->queued >= capacity) return Posted::full;
  if (state_->threads.empty() || (state_->growth == Growth::while_blocked && state_->standing_by == 0)) {
    (void)state_->start_if_possible();
    if (state_->threads.empty()) return Posted::no_thread;
  }
  state_->push(std::move(callback));
  state_->idle.reset();
  // While functions are queued, the standby thread checks the queue without being notified.
  if (state_->queued == 1) state_->changed.notify_all();
  return Posted::queued;
}

void CallbackThreads::run_if_starved() {
  std::unique_lock lock(state_->mutex);
  while (state_->queued != 0 && state_->standing_by == 0 && !state_->start_if_possible()) state_->run_next(lock);
}

bool CallbackThreads::is_this_thread() const {
  const std::lock_guard lock(state_->mutex);
  return state_->is_this_thread();
}

asio::awaitable<void> CallbackThreads::idle(std::chrono::steady_clock::time_point until) {
  (void)co_await state_->idle.wait(until);
}

bool CallbackThreads::wait_until_idle(std::chrono::steady_clock::time_point until) {
  return state_->idle.wait_blocking(until);
}

void CallbackThreads::finish(QueuedFunctions leftover) {
  std::shared_ptr<Callback> dropped;
  {
    const std::lock_guard lock(state_->mutex);
    state_->finishing = true;
    if (leftover == QueuedFunctions::drop) {
      dropped = std::exchange(state_->first, nullptr);
      state_->last = nullptr;
      state_->queued = 0;
    }
    state_->update_idle();
    state_->changed.notify_all();
  }
  // One at a time, because each holds the next one.
  while (dropped) dropped = std::exchange(dropped->next_, nullptr);
}

}  // namespace syncguard::async
