#include "async/detachable_thread.hpp"

#include "os/threads.hpp"

#include <utility>

namespace syncguard::async {
namespace {

constexpr std::chrono::seconds grace{2};

}  // namespace

DetachableThread::DetachableThread(const std::string& name, std::function<void()> body)
    : thread_(os::start_thread(name, [ended = ended_, body = std::move(body)]() mutable {
        body();
        // Destroys the body's objects before reporting the end.
        body = nullptr;
        ended.set();
      })) {}

DetachableThread::~DetachableThread() {
  if (ended_.wait_blocking(std::chrono::steady_clock::now() + grace)) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

asio::awaitable<void> DetachableThread::ended(std::chrono::steady_clock::time_point until, std::stop_token stop) {
  (void)co_await ended_.wait(until, std::move(stop));
}

}  // namespace syncguard::async
