#include "async/callback_threads.hpp"

#include "async/event.hpp"
#include "os/threads.hpp"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <fstream>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

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

// Whether the system would let the thread run: it is neither asleep nor stopped. False if the state cannot be read.
bool is_runnable(pid_t thread) {
  std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(status, text);
  // The state follows the name, which is in parentheses and may itself contain parentheses.
  const auto name_end = text.rfind(") ");
  return name_end != std::string::npos && name_end + 2 < text.size() && text[name_end + 2] == 'R';
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

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  std::map<std::thread::id, std::thread> threads;
  Runner* runner = nullptr;  // will take the next function; null if no function runs, or all running ones block
  bool has_standby = false;  // a thread waits for functions, or for the runner to block
  std::uint64_t begun = 0;
  std::chrono::microseconds wait_before_growth = max_wait_before_growth;
  std::size_t busy = 0;
  std::size_t ended = 0;  // threads that have ended since finish()
  bool finishing = false;
  const Event idle;  // set while no function is queued or running

  // All functions below require the mutex.

  void update_idle() {
    if (queue.empty() && busy == 0) idle.set();
  }

  void start() {
    auto thread = os::start_thread(name, [self = shared_from_this()] { self->run(); });
    const auto id = thread.get_id();
    threads.emplace(id, std::move(thread));
    has_standby = true;
  }

  // If the system cannot start another thread, the function waits for an existing one.
  void start_if_possible() {
    try {
      start();
    } catch (const std::system_error&) {  // NOLINT(bugprone-empty-catch)
    }
  }

  // Called by the standby thread. Waits until that thread has to run a function. Returns false if there will be none.
  bool wait_for_function(std::unique_lock<std::mutex>& lock) {
    for (;;) {
      changed.wait(lock, [this] { return finishing || !queue.empty(); });
      if (queue.empty()) return false;
      if (runner == nullptr) return true;
      const auto seen = begun;
      const bool progress = changed.wait_for(lock, wait_before_growth,
                                             [&] { return queue.empty() || runner == nullptr || begun != seen; });
      if (!progress && runner_is_blocked()) {
        wait_before_growth = std::max(wait_before_growth / 2, min_wait_before_growth);
        return true;
      }
    }
  }

  [[nodiscard]] bool runner_is_blocked() const {
    return steady_clock::now() - runner->began > max_run_before_growth || !is_runnable(runner->id);
  }

  void run_next(std::unique_lock<std::mutex>& lock, Runner& self) {
    auto function = std::move(queue.front());
    queue.pop_front();
    ++begun;
    ++busy;
    self.began = steady_clock::now();
    if (growth == Growth::while_blocked && !queue.empty() && !has_standby) start_if_possible();
    lock.unlock();
    try {
      function();
    } catch (...) {  // NOLINT(bugprone-empty-catch): by contract
    }
    function = nullptr;
    lock.lock();
    --busy;
    update_idle();
    if (queue.empty()) changed.notify_all();
  }

  void run() {
    Runner self{gettid()};
    std::unique_lock lock(mutex);
    // Every thread starts as the standby thread.
    while (wait_for_function(lock)) {
      has_standby = false;
      runner = &self;
      do {
        run_next(lock, self);
        if (runner == &self) wait_before_growth = max_wait_before_growth;
      } while (runner == &self && !queue.empty());
      if (runner == &self) runner = nullptr;
      // One standby thread is enough for the next function, so this thread ends if there is another.
      if (has_standby) break;
      has_standby = true;
    }
    if (finishing) {
      // The destructor joins this thread.
      ++ended;
      changed.notify_all();
      return;
    }
    auto node = threads.extract(std::this_thread::get_id());
    node.mapped().detach();
  }
};

CallbackThreads::CallbackThreads(std::string name, Growth growth) : state_(std::make_shared<State>()) {
  state_->name = std::move(name);
  state_->growth = growth;
  state_->idle.set();
  if (growth == Growth::none) return;
  const std::lock_guard lock(state_->mutex);
  state_->start();
}

CallbackThreads::~CallbackThreads() {
  finish(QueuedFunctions::run);
  std::unique_lock lock(state_->mutex);
  const bool own_thread = state_->threads.contains(std::this_thread::get_id());
  const auto all_ended = [this] { return state_->ended >= state_->threads.size(); };
  const bool joinable = !own_thread && state_->changed.wait_for(lock, grace, all_ended);
  auto threads = std::move(state_->threads);
  lock.unlock();
  for (auto& [id, thread] : threads) {
    if (joinable) {
      thread.join();
    } else {
      thread.detach();
    }
  }
}

bool CallbackThreads::post(std::function<void()> function, std::size_t capacity) {
  const std::lock_guard lock(state_->mutex);
  if (state_->finishing || state_->queue.size() >= capacity) return false;
  if (state_->threads.empty() || (state_->growth == Growth::while_blocked && !state_->has_standby)) {
    state_->start_if_possible();
    if (state_->threads.empty()) return false;
  }
  state_->queue.push_back(std::move(function));
  state_->idle.reset();
  // While functions are queued, the standby thread checks the queue without being notified.
  if (state_->queue.size() == 1) state_->changed.notify_all();
  return true;
}

bool CallbackThreads::is_this_thread() const {
  const std::lock_guard lock(state_->mutex);
  return state_->threads.contains(std::this_thread::get_id());
}

asio::awaitable<void> CallbackThreads::idle(std::chrono::steady_clock::time_point until) {
  (void)co_await state_->idle.wait(until);
}

bool CallbackThreads::wait_until_idle(std::chrono::steady_clock::time_point until) {
  return state_->idle.wait_blocking(until);
}

void CallbackThreads::finish(QueuedFunctions leftover) {
  std::deque<std::function<void()>> dropped;
  const std::lock_guard lock(state_->mutex);
  state_->finishing = true;
  if (leftover == QueuedFunctions::drop) dropped.swap(state_->queue);
  state_->update_idle();
  state_->changed.notify_all();
}

}  // namespace syncguard::async
