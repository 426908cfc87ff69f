#include "command/waiting_display.hpp"

#include "command/output.hpp"
#include "command/printable.hpp"
#include "command/signals.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

namespace syncguard::command {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

std::string describe(Locks& locks, const std::string& key, const std::stop_token& stop) {
  try {
    const auto info = locks.lookup(Key(key), stop);
    if (!info) return "the lock is about to be free";
    return "locked by " + (info->holder.empty() ? "unknown" : printable(info->holder)) + " since " +
           local_time(info->acquired_at) + ", until " + local_time(info->expires_at) + " unless it is extended";
  } catch (const LockError& error) {
    return printable(message_with_causes(error));
  }
}

// A background job would overwrite the user's input, or be stopped for writing (stty tostop).
bool is_in_background() {
  const pid_t foreground = tcgetpgrp(STDERR_FILENO);
  return foreground >= 0 && foreground != getpgrp();
}

void show(const std::string& text) {
  if (is_in_background()) return;
  winsize size{};
  // A line that wraps could not be erased.
  const std::size_t width = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1U : 79U;
  const std::string line = "\r\033[K" + text.substr(0, width);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

void keep_showing(Locks& locks, const std::string& key, const std::stop_token& stop) {
  const auto start = steady_clock::now();
  while (!stop.stop_requested()) {
    const auto text = describe(locks, key, stop);
    const auto waited = std::chrono::duration_cast<std::chrono::seconds>(steady_clock::now() - start);
    if (!stop.stop_requested()) show("waiting for " + std::to_string(waited.count()) + "s: " + text);
    sleep_until_stopped(stop, 1s);
  }
  show("");
}

}  // namespace

WaitingDisplay::WaitingDisplay(Locks locks, std::string key) {
  if (isatty(STDERR_FILENO) == 0) return;
  thread_ = std::jthread([locks = std::move(locks), key = std::move(key)](const std::stop_token& stop) mutable {
    keep_showing(locks, key, stop);
  });
}

}  // namespace syncguard::command
