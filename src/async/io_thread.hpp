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
  // Ends the thread, and waits for its end unless called on that thread. Pending completions are dropped.
  ~IoThread();

  [[nodiscard]] asio::any_io_executor executor() const;
  [[nodiscard]] bool is_this_thread() const noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread thread_;
};

// The executor of an I/O thread for a forked child, where the parent's threads do not exist. Started by the first call
// in each process; ends with the process.
[[nodiscard]] asio::any_io_executor executor_in_child();

}  // namespace syncguard::async
