// An interactive shell on a pseudo-terminal.
#pragma once

#include "e2e/command_process.hpp"
#include "support/eventually.hpp"

#include <gtest/gtest.h>

#include <pty.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

namespace syncguard::testing {

class Terminal {
 public:
  static constexpr const char* ctrl_c = "\x03";
  static constexpr const char* ctrl_z = "\x1a";

  // In the shell, $syncguard is the command.
  explicit Terminal(const std::string& url) {
    shell_ = forkpty(&descriptor_, nullptr, nullptr, nullptr);
    if (shell_ == 0) {
      use_default_signals();
      setenv("SYNCGUARD_URL", url.c_str(), 1);
      setenv("syncguard", SYNCGUARD_COMMAND, 1);
      setenv("PS1", "", 1);
      setenv("TERM", "dumb", 1);
      // Without the line editor, which would change the mode of the terminal.
      execlp("bash", "bash", "--norc", "--noprofile", "--noediting", "-i", nullptr);
      _exit(98);
    }
    reader_ = std::thread([this] { read_all(); });
    // Without echo, so that the output does not contain what the test types.
    type("stty -echo; PS1=; echo rea''dy\n");
    wait_for("ready");
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() {
    kill(shell_, SIGKILL);
    waitpid(shell_, nullptr, 0);
    // The remaining processes of the session get SIGHUP.
    ending_ = true;
    reader_.join();
    close(descriptor_);
  }

  void type(const std::string& text) const {
    if (write(descriptor_, text.data(), text.size()) < 0) std::abort();
  }
  // Waits for `text` and returns the output since the last successful call, up to and including it. If the text does
  // not appear, the test fails and the result is empty.
  std::string wait_for(const std::string& text) {
    std::string found;
    const bool came = eventually([&] {
      const std::lock_guard lock(mutex_);
      const auto place = shown_.find(text, seen_);
      if (place == std::string::npos) return false;
      found = shown_.substr(seen_, place + text.size() - seen_);
      seen_ = place + text.size();
      return true;
    });
    if (!came) ADD_FAILURE() << "'" << text << "' was not shown, but:\n" << everything();
    return found;
  }
  std::string everything() {
    const std::lock_guard lock(mutex_);
    return shown_;
  }

 private:
  void read_all() {
    while (!ending_) {
      timeval wait{.tv_sec = 0, .tv_usec = 20'000};
      fd_set set;
      FD_ZERO(&set);
      FD_SET(descriptor_, &set);
      if (select(descriptor_ + 1, &set, nullptr, nullptr, &wait) <= 0) continue;
      char buffer[4096];
      const ssize_t length = read(descriptor_, buffer, sizeof buffer);
      if (length <= 0) return;
      const std::lock_guard lock(mutex_);
      shown_.append(buffer, static_cast<std::size_t>(length));
    }
  }

  int descriptor_ = -1;
  pid_t shell_ = -1;
  std::atomic<bool> ending_ = false;
  std::mutex mutex_;
  std::string shown_;
  std::size_t seen_ = 0;
  std::thread reader_;
};

}  // namespace syncguard::testing
