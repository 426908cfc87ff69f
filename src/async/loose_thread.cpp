#include "async/loose_thread.hpp"

#include "async/thread.hpp"

#include <condition_variable>
#include <mutex>
#include <utility>

namespace syncguard::async {
namespace {

constexpr std::chrono::seconds grace{2};

}  // namespace

// Shared with the thread.
struct LooseThread::End {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;
  std::shared_ptr<WakeUp> waiting;

  void reach() {
    const std::lock_guard lock(mutex);
    reached = true;
    changed.notify_all();
    if (waiting) waiting->wake();
  }
};

LooseThread::LooseThread(const std::string& name, std::function<void()> body)
    : end_(std::make_shared<End>()), thread_(start_thread(name, [end = end_, body = std::move(body)]() mutable {
        body();
        // What it owns goes before its end is told.
        body = nullptr;
        end->reach();
      })) {}

LooseThread::~LooseThread() {
  std::unique_lock lock(end_->mutex);
  const bool reached = end_->changed.wait_for(lock, grace, [this] { return end_->reached; });
  lock.unlock();
  if (reached) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

asio::awaitable<void> LooseThread::ended(std::chrono::steady_clock::time_point until, std::stop_token stop) {
  const auto wake_up = std::make_shared<WakeUp>();
  {
    const std::lock_guard lock(end_->mutex);
    if (end_->reached) co_return;
    end_->waiting = wake_up;
  }
  co_await wake_up->wait(until, std::move(stop));
}

}  // namespace syncguard::async
