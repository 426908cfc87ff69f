// A thread that may be left behind.
#pragma once

#include "async/wake_up.hpp"

#include <asio/awaitable.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

namespace syncguard::async {

// For what the system may not let go of, such as a disk that hangs: nobody waits for its end for ever. Whoever has it
// tells it to end, by whatever means they have agreed on.
class LooseThread {
 public:
  // body must own all that it uses.
  LooseThread(const std::string& name, std::function<void()> body);
  LooseThread(const LooseThread&) = delete;
  LooseThread& operator=(const LooseThread&) = delete;
  // Waits for the end for a moment, then leaves the thread behind.
  ~LooseThread();

  // Waits for the end, at most until then or until a stop is requested.
  asio::awaitable<void> ended(std::chrono::steady_clock::time_point until, std::stop_token stop);

 private:
  struct End;

  const std::shared_ptr<End> end_;
  std::thread thread_;
};

}  // namespace syncguard::async
