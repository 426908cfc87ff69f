// The thread on which a client's I/O completes.
#pragma once

#include <asio/any_io_executor.hpp>

#include <memory>
#include <thread>

namespace syncguard::async {

class IoThread {
 public:
  IoThread();
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;
  // Ends the thread, and waits for that unless called on the thread itself. What was still to complete is dropped.
  ~IoThread();

  [[nodiscard]] asio::any_io_executor executor() const;
  [[nodiscard]] bool is_this_thread() const noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace syncguard::async
