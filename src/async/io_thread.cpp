#include "async/io_thread.hpp"

#include "os/fork.hpp"
#include "os/threads.hpp"

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>

#include <atomic>
#include <memory>
#include <new>

namespace syncguard::async {

// Shared with the thread, which outlives the IoThread if a handler on that thread destroys it.
struct IoThread::State {
  asio::io_context context;
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};

  // A handler that ran out of memory must not end the thread: other handlers can still run.
  void run() {
    for (;;) {
      try {
        context.run();
        return;
      } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): see docs/adr/0053-out-of-memory.md
      }
    }
  }
};

IoThread::IoThread()
    : state_(std::make_shared<State>()),
      thread_(os::start_thread("syncguard-io", [state = state_] { state->run(); })) {}

IoThread::~IoThread() {
  // Stopped, instead of waiting until there is no more work: an operation that a backend did not end must not hang the
  // client.
  state_->context.stop();
  if (is_this_thread()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

asio::any_io_executor IoThread::executor() const { return state_->context.get_executor(); }

bool IoThread::is_this_thread() const noexcept { return thread_.get_id() == std::this_thread::get_id(); }

asio::any_io_executor executor_in_child() {
  struct Started {
    explicit Started(const Started* before) : of_parent(before) {}
    const os::OriginProcess origin;
    const Started* const of_parent;  // never destroyed: its thread cannot be joined in this process
    const IoThread thread;
  };
  // Not a mutex, because a fork could copy it in its locked state.
  static std::atomic<Started*> latest{nullptr};
  Started* started = latest.load();
  if (started == nullptr || started->origin.is_ancestor()) {
    auto made = std::make_unique<Started>(started);
    if (latest.compare_exchange_strong(started, made.get())) started = made.release();
  }
  return started->thread.executor();
}

}  // namespace syncguard::async
