// A thread that can be detached if it hangs.
#pragma once

#include "async/event.hpp"

#include <asio/awaitable.hpp>

#include <chrono>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>

namespace syncguard::async {

// For work that may hang in a system call, for example on a disk: no caller waits for it forever. How to tell the
// thread to end is up to the owner.
class DetachableThread {
 public:
  // body must own everything it uses.
  DetachableThread(const std::string& name, std::function<void()> body);
  DetachableThread(const DetachableThread&) = delete;
  DetachableThread& operator=(const DetachableThread&) = delete;
  // Waits up to 2 s for the thread to end, then detaches it.
  ~DetachableThread();

  // Waits until the thread has ended, until the given time, or until a stop is requested.
  asio::awaitable<void> ended(std::chrono::steady_clock::time_point until, std::stop_token stop);

 private:
  const Event ended_;
  std::thread thread_;
};

}  // namespace syncguard::async
