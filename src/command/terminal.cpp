#include "command/terminal.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace syncguard::command {

Terminal::Terminal(pid_t owner) : owner_(owner), descriptor_(open("/dev/tty", O_RDWR | O_CLOEXEC)) {}

Terminal::~Terminal() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool Terminal::is_for_command() const {
  return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 && is_held_by_owner();
}

bool Terminal::is_held_by(pid_t group) const { return descriptor_ >= 0 && tcgetpgrp(descriptor_) == group; }

void Terminal::remember_mode() {
  termios mode{};
  if (descriptor_ >= 0 && tcgetattr(descriptor_, &mode) == 0) mode_ = mode;
}

void Terminal::give_to(pid_t group) const {
  if (descriptor_ >= 0) (void)tcsetpgrp(descriptor_, group);
}

void Terminal::restore_mode_after(pid_t group) const {
  // Immediately: a terminal whose output is stopped (Ctrl-S) would never drain.
  if (mode_ && is_held_by(group)) (void)tcsetattr(descriptor_, TCSANOW, &*mode_);
}

void Terminal::take_back_from(pid_t group) const {
  if (is_held_by(group)) give_to(owner_);
}

}  // namespace syncguard::command
