#include "async/callback_thread.hpp"

#include "async/thread.hpp"
#include "async/wake_up.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

namespace syncguard::async {

// Shared with the thread, which is never joined: a callback may block for ever, and may be what destroys its owner.
struct CallbackThread::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  bool started = false;
  bool finishing = false;
  bool running = false;
  std::thread::id thread;

  void run() {
    std::unique_lock lock(mutex);
    thread = std::this_thread::get_id();
    for (;;) {
      changed.wait(lock, [this] { return finishing || !queue.empty(); });
      if (queue.empty()) break;
      auto function = std::move(queue.front());
      queue.pop_front();
      running = true;
      lock.unlock();
      try {
        function();
      } catch (...) {  // NOLINT(bugprone-empty-catch): by contract
      }
      function = nullptr;
      lock.lock();
      running = false;
    }
  }
};

CallbackThread::CallbackThread(std::string name) : name_(std::move(name)), state_(std::make_shared<State>()) {}

CallbackThread::~CallbackThread() { finish(); }

bool CallbackThread::post(std::function<void()> function, std::size_t capacity) {
  const std::lock_guard lock(state_->mutex);
  if (state_->finishing || state_->queue.size() >= capacity) return false;
  if (!state_->started) {
    start_thread(name_, [state = state_] { state->run(); }).detach();
    state_->started = true;
  }
  state_->queue.push_back(std::move(function));
  state_->changed.notify_all();
  return true;
}

bool CallbackThread::is_this_thread() const {
  const std::lock_guard lock(state_->mutex);
  return state_->thread == std::this_thread::get_id();
}

bool CallbackThread::is_idle() const {
  const std::lock_guard lock(state_->mutex);
  return state_->queue.empty() && !state_->running;
}

void CallbackThread::finish() {
  const std::lock_guard lock(state_->mutex);
  state_->finishing = true;
  state_->changed.notify_all();
}

asio::awaitable<void> drained(CallbackThread& thread, std::chrono::steady_clock::time_point until) {
  if (thread.is_idle()) co_return;
  const auto ran = std::make_shared<WakeUp>();
  if (thread.post([ran] { ran->wake(); })) co_await ran->wait(until, {});
}

}  // namespace syncguard::async
