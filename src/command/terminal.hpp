// The controlling terminal of this session, which syncguard lends to its command.
#pragma once

#include <sys/types.h>
#include <termios.h>

#include <optional>

namespace syncguard::command {

// Without a controlling terminal, no group holds it, and all functions do nothing. Block SIGTTOU before changing
// anything: by default, it stops a background process that does so.
class Terminal {
 public:
  // owner: the process group that lends the terminal.
  explicit Terminal(pid_t owner);
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal();

  // Whether a command should start in the foreground. Not in a pipeline, whose other parts may need the terminal; there
  // the command gets it on demand.
  [[nodiscard]] bool is_for_command() const;
  [[nodiscard]] bool is_held_by_owner() const { return is_held_by(owner_); }
  [[nodiscard]] bool is_held_by(pid_t group) const;

  // Stores the terminal's mode, such as echo and line editing, for restore_mode_after().
  void remember_mode();
  void give_to(pid_t group) const;
  // Both do nothing unless the group holds the terminal.
  void restore_mode_after(pid_t group) const;
  void take_back_from(pid_t group) const;

 private:
  const pid_t owner_;
  const int descriptor_;
  std::optional<termios> mode_;
};

}  // namespace syncguard::command
