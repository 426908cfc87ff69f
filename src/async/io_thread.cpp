#include "async/io_thread.hpp"

#include "async/thread.hpp"

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>

namespace syncguard::async {

// Shared with the thread, which may outlive the IoThread when that is destroyed by a handler that runs on it.
struct IoThread::State {
  asio::io_context context;
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
};

IoThread::IoThread()
    : state_(std::make_shared<State>()),
      thread_(start_thread("syncguard-io", [state = state_] { state->context.run(); })) {}

IoThread::~IoThread() {
  // Stopped rather than left to run out of work: what a backend forgot must not hang its client.
  state_->context.stop();
  if (is_this_thread()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

asio::any_io_executor IoThread::executor() const { return state_->context.get_executor(); }

bool IoThread::is_this_thread() const noexcept { return thread_.get_id() == std::this_thread::get_id(); }

}  // namespace syncguard::async
