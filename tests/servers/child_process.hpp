// A server that a test runs for itself.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace syncguard::testing {

// A program that ends with the test, however that ends.
class ChildProcess {
 public:
  // Output goes to a file.
  ChildProcess(const std::vector<std::string>& command, const std::filesystem::path& output);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  // Kills it.
  ~ChildProcess();

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] bool is_running();
  void send(int signal) const;
  // Stops it, and returns when it has stopped: until then it may still answer.
  void pause() const;
  void resume() const;
  // Waits for its end.
  void wait();

 private:
  pid_t pid_;
  bool ended_ = false;
};

// Runs a program to its end. Throws, with its output, unless it succeeds.
void run_program(const std::vector<std::string>& command, const std::filesystem::path& output);

// Calls start with a port of the loopback interface that nobody used a moment ago, and with another one if it throws
// std::runtime_error: somebody else may have been faster to take the port.
void start_on_free_port(const std::function<void(int port)>& start);

}  // namespace syncguard::testing
