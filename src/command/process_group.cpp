#include "command/process_group.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace syncguard::command {
namespace {

// Whether the process is in the group and running; if its state cannot be read, it counts as running.
bool runs_in_group(pid_t process, pid_t group) {
  if (getpgid(process) != group) return false;
  const auto stat = file_of_process(process, "stat");
  const auto name_end = stat.rfind(')');
  if (name_end == std::string::npos) return getpgid(process) == group;
  char state = 0;
  int threads = 0;
  // Field 20. A process whose main thread has ended is a zombie by its state, but may have other threads.
  if (std::sscanf(stat.c_str() + name_end + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d",
                  &state, &threads) != 2) {
    return true;
  }
  return (state != 'Z' && state != 'X') || threads > 1;
}

}  // namespace

std::string file_of_process(pid_t process, const char* name) {
  char buffer[1024];
  const int file = open(("/proc/" + std::to_string(process) + "/" + name).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  const ssize_t length = read(file, buffer, sizeof buffer);
  close(file);
  return length > 0 ? std::string(buffer, static_cast<std::size_t>(length)) : "";
}

void ProcessGroup::send(int signal) const {
  // Group 0 would be this process's own.
  if (id_ > 0) (void)kill(-id_, signal);
}

bool ProcessGroup::is_empty() {
  if (id_ <= 0) return true;
  if (kill(-id_, 0) != 0) return errno == ESRCH;
  if (member_ != 0 && runs_in_group(member_, id_)) return false;
  member_ = 0;
  // If other users' processes are hidden (hidepid), an invisible process may still run.
  if (access("/proc/1", F_OK) != 0) return false;
  DIR* const processes = opendir("/proc");
  if (processes == nullptr) return false;
  while (const dirent* entry = readdir(processes)) {
    const int process = std::atoi(entry->d_name);
    if (process > 0 && runs_in_group(process, id_)) {
      member_ = process;
      break;
    }
  }
  closedir(processes);
  return member_ == 0;
}

}  // namespace syncguard::command
