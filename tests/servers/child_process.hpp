// Programs that a test runs.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace syncguard::testing {

// A program that ends when the test ends, even if the test crashes.
class ChildProcess {
 public:
  // Writes the program's output to a file.
  ChildProcess(const std::vector<std::string>& command, const std::filesystem::path& output);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  // Kills the process.
  ~ChildProcess();

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] bool is_running();
  void send(int signal) const;
  // Returns when the process has stopped: until then, it may still answer requests.
  void pause() const;
  void resume() const;
  // Waits until the process has ended.
  void wait();

 private:
  pid_t pid_;
  bool ended_ = false;
};

// Runs a program and waits until it has ended. If it fails, throws an error with its output.
void run_program(const std::vector<std::string>& command, const std::filesystem::path& output);

// Calls start() with a free port. If it throws std::runtime_error, tries again with another port, because another
// process may have taken the first one.
void start_on_free_port(const std::function<void(int port)>& start);

}  // namespace syncguard::testing
