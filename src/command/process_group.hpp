// The process group of the command that `syncguard run` runs.
#pragma once

#include <sys/types.h>

#include <string>

namespace syncguard::command {

// The contents of a small file of the process in /proc, such as comm; empty if it cannot be read.
std::string file_of_process(pid_t process, const char* name);

class ProcessGroup {
 public:
  // No group.
  ProcessGroup() = default;
  explicit ProcessGroup(pid_t id) : id_(id) {}

  [[nodiscard]] pid_t id() const noexcept { return id_; }
  // To every process of the group that this user may signal.
  void send(int signal) const;
  // Whether no process of the group runs. Zombies do not count: their parent may be a process that left the group and
  // never reaps them.
  [[nodiscard]] bool is_empty();

 private:
  pid_t id_ = 0;
  // The process that was last seen running.
  pid_t member_ = 0;
};

}  // namespace syncguard::command
