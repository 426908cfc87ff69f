#include "async/callback_threads.hpp"

#include "async/thread.hpp"
#include "async/wake_up.hpp"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace syncguard::async {
namespace {

// How long a destructor waits for threads that should have nothing left to do.
constexpr std::chrono::milliseconds grace{100};

}  // namespace

// Shared with the threads, which may outlive their owner: a callback may block for ever, and may be what destroys it.
struct CallbackThreads::State : std::enable_shared_from_this<State> {
  std::string name;
  std::size_t most_threads = 1;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  std::map<std::thread::id, std::thread> threads;
  std::size_t busy = 0;
  std::size_t ended = 0;  // since finish
  bool finishing = false;
  std::vector<std::shared_ptr<WakeUp>> waiting_for_idle;

  // With the mutex held.
  [[nodiscard]] bool is_idle() const { return queue.empty() && busy == 0; }
  void start() {
    auto thread = start_thread(name, [self = shared_from_this()] { self->run(); });
    const auto id = thread.get_id();
    threads.emplace(id, std::move(thread));
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      // One thread stays for the next function; the others were only needed while it was busy.
      changed.wait(lock, [this] { return finishing || !queue.empty() || threads.size() > 1; });
      if (queue.empty()) break;
      auto function = std::move(queue.front());
      queue.pop_front();
      ++busy;
      lock.unlock();
      try {
        function();
      } catch (...) {  // NOLINT(bugprone-empty-catch): by contract
      }
      function = nullptr;
      lock.lock();
      --busy;
      if (is_idle()) {
        for (const auto& wake_up : waiting_for_idle) wake_up->wake();
        waiting_for_idle.clear();
      }
    }
    // Whoever destroys the owner joins those that are left; nobody would join this one otherwise.
    if (!finishing) {
      auto self = threads.extract(std::this_thread::get_id());
      self.mapped().detach();
      return;
    }
    ++ended;
    changed.notify_all();
  }
};

CallbackThreads::CallbackThreads(std::string name, std::size_t most_threads) : state_(std::make_shared<State>()) {
  state_->name = std::move(name);
  state_->most_threads = most_threads;
  const std::lock_guard lock(state_->mutex);
  state_->start();
}

CallbackThreads::~CallbackThreads() {
  finish(Leftover::run);
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
  state_->queue.push_back(std::move(function));
  if (state_->busy + state_->queue.size() > state_->threads.size() && state_->threads.size() < state_->most_threads) {
    try {
      state_->start();
    } catch (const std::system_error&) {  // NOLINT(bugprone-empty-catch): then it waits for a thread that is there
    }
  }
  state_->changed.notify_one();
  return true;
}

bool CallbackThreads::is_this_thread() const {
  const std::lock_guard lock(state_->mutex);
  return state_->threads.contains(std::this_thread::get_id());
}

asio::awaitable<void> CallbackThreads::idle(std::chrono::steady_clock::time_point until) {
  const auto now_idle = std::make_shared<WakeUp>();
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->is_idle()) co_return;
    state_->waiting_for_idle.push_back(now_idle);
  }
  co_await now_idle->wait(until, {});
}

void CallbackThreads::finish(Leftover leftover) {
  std::deque<std::function<void()>> dropped;
  const std::lock_guard lock(state_->mutex);
  state_->finishing = true;
  if (leftover == Leftover::drop) dropped.swap(state_->queue);
  state_->changed.notify_all();
}

}  // namespace syncguard::async
