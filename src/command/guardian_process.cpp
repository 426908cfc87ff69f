#include "command/guardian.hpp"
#include "command/process_group.hpp"
#include "command/terminal.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace syncguard::command {
namespace {

using namespace std::chrono_literals;
using Time = BootClock::time_point;

// How often to check whether a group still has members that are not children of this process.
constexpr auto poll_interval = 20ms;

// A service manager signals the processes of a service one by one. How long to wait for the guardian's own copy of a
// signal before forwarding it to the command, and for how long that copy counts.
constexpr auto copy_delay = 200ms;
constexpr auto copy_lifetime = 10s;

// Whether the process may be init or systemd, which can end a whole service. Zero: it is outside this pid namespace,
// like the manager of a container.
bool is_service_manager(pid_t process) {
  if (process == no_sender) return false;
  return process <= 1 || file_of_process(process, "comm").starts_with("systemd");
}

// Makes the kernel kill a process group when the guardian ends, however it ends: no process has to be left to do it.
//
// The guardian has the only write end of a pipe. When the guardian ends, the kernel closes that end and signals the
// owner of the read end that the pipe has changed. Here the owner is the group, and the signal is SIGKILL.
//
// The read end must still be open then, although the guardian may be the last process of syncguard, and the command may
// close descriptors that it does not know. It is in a message that was sent to a socket of the guardian and is never
// received. The kernel closes what is in unread messages only after all descriptors of the process.
class KillAtExit {
 public:
  // In the guardian. Returns zero or an errno.
  int prepare() {
    int ends[2];
    int sockets[2];
    if (pipe2(ends, O_CLOEXEC) != 0 || socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, sockets) != 0) return errno;
    read_end_ = ends[0];
    write_end_ = ends[1];
    // Descriptors in messages count against this limit, for all processes of the user together.
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlimit raised{.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &raised);
    const int error = send_descriptor(sockets[0], read_end_);
    setrlimit(RLIMIT_NOFILE, &limit);
    return error;
  }

  // In the guardian, when it has forked the command's process: only the message keeps the read end open.
  void close_read_end() const { close(read_end_); }

  // In the command's process, which is the leader of its group, before it executes anything. System calls only. Returns
  // zero or an errno.
  [[nodiscard]] int kill_own_group() const {
    close(write_end_);
    if (fcntl(read_end_, F_SETOWN, -getpid()) != 0 || fcntl(read_end_, F_SETSIG, SIGKILL) != 0 ||
        fcntl(read_end_, F_SETFL, O_ASYNC) != 0) {
      return errno;
    }
    // The end of a guardian that has already ended causes no signal any more.
    pollfd pipe{.fd = read_end_, .events = POLLIN, .revents = 0};
    return poll(&pipe, 1, 0) == 0 ? 0 : EOWNERDEAD;
  }

 private:
  static int send_descriptor(int socket, int descriptor) {
    char byte = 0;
    iovec content{.iov_base = &byte, .iov_len = 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof descriptor)> control{};
    msghdr message{};
    message.msg_iov = &content;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    return sendmsg(socket, &message, MSG_NOSIGNAL) == 1 ? 0 : errno;
  }

  int read_end_ = -1;
  int write_end_ = -1;
};

// State, event and next state:
//
//   idle         start                                   running
//                syncguard has ended                     the end
//   running      kill_after before the deadline          terminating: SIGTERM; SIGKILL at the deadline
//                the command exceeded its timeout        terminating: SIGTERM; SIGKILL after kill_after_timeout
//                syncguard has ended                     terminating: SIGTERM; SIGKILL after kill_after, or at the
//                                                        deadline if that is sooner
//                lock gone, or deadline passed           killing: SIGKILL, repeatedly
//   terminating  the same, or the grace period ended     killing
//   except idle  the process group is empty              the end, with a report
class Guard {
 public:
  Guard(int socket, pid_t parent_group, const GuardianConfig& config)
      : socket_(socket), terminal_(parent_group), config_(config) {}

  [[noreturn]] void run() {
    prepare();
    for (;;) {
      pollfd sources[] = {{.fd = socket_, .events = POLLIN, .revents = 0},
                          {.fd = signals_, .events = POLLIN, .revents = 0},
                          {.fd = timer_, .events = POLLIN, .revents = 0}};
      arm_timer();
      (void)poll(sources, std::size(sources), -1);
      read_signals();
      // Pending renewals are read before the deadline is checked, and the deadline before the command is resumed.
      read_requests();
      if (state_ == State::idle) continue;
      check_deadline();
      forward_held_signals();
      if (resume_requested_) resume();
      reap();
      if (state_ == State::killing) group_.send(SIGKILL);
      if (leader_ended_ && group_.is_empty()) finish();
    }
  }

 private:
  enum class State { idle, running, terminating, killing };
  // Why the command was terminated.
  enum class Reason { none, lock, timeout };

  // A signal that the guardian itself received.
  struct Copy {
    pid_t sender = no_sender;
    Time at{};
  };
  // A signal that syncguard received for the command.
  struct HeldSignal {
    int number;
    pid_t sender;
    Time until;
  };

  void prepare() {
    // Keeps Ctrl-C, Ctrl-Z and signals to the shell's job away from the guardian.
    setpgid(0, 0);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    // A stopped guardian must notice that syncguard has ended. While syncguard runs, it resumes the guardian.
    prctl(PR_SET_PDEATHSIG, SIGCONT);
    prctl(PR_SET_NAME, "syncguard-guard");

    sigset_t seen;
    sigemptyset(&seen);
    for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM}) {
      sigaddset(&seen, number);
    }
    signals_ = signalfd(-1, &seen, SFD_CLOEXEC | SFD_NONBLOCK);
    timer_ = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    // Written by the command's process if its exec fails.
    void* shared = mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (signals_ < 0 || timer_ < 0 || shared == MAP_FAILED) not_started(errno);
    exec_error_ = static_cast<int*>(shared);
  }

  void read_signals() {
    signalfd_siginfo received;
    while (read(signals_, &received, sizeof received) > 0) {
      if (received.ssi_signo >= copies_.size() || received.ssi_code == SI_KERNEL) continue;
      copies_[received.ssi_signo] = {.sender = static_cast<pid_t>(received.ssi_pid), .at = BootClock::now()};
    }
  }

  // systemd's KillMode=control-group sends a signal to every process of the service, the command and the guardian
  // included, so the command has already received it. Only a service manager counts, because `pkill -f syncguard` finds
  // the guardian, but not the command.
  void forward(const GuardianRequest& request) {
    if (!is_service_manager(request.sender)) {
      group_.send(request.signal);
      return;
    }
    held_signals_.push_back(
        {.number = request.signal, .sender = request.sender, .until = BootClock::now() + copy_delay});
  }

  void forward_held_signals() {
    const auto time = BootClock::now();
    std::erase_if(held_signals_, [&](const HeldSignal& held) {
      auto& copy = copies_.at(static_cast<std::size_t>(held.number));
      const bool already_received = copy.sender == held.sender && time - copy.at < copy_lifetime;
      if (already_received) copy = {};
      if (!already_received && time >= held.until) group_.send(held.number);
      return already_received || time >= held.until;
    });
  }

  void read_requests() {
    while (socket_ >= 0) {
      GuardianRequest request{};
      const ssize_t length = recv(socket_, &request, sizeof request, MSG_DONTWAIT);
      if (length == static_cast<ssize_t>(sizeof request)) {
        handle(request);
      } else if (length < 0 && (errno == EINTR || errno == ECONNRESET)) {
        // ECONNRESET means that syncguard ended without reading all reports. Its earlier requests can still be read.
        continue;
      } else if (length < 0 && errno == EAGAIN) {
        return;
      } else {
        on_syncguard_exit();
      }
    }
  }

  void handle(const GuardianRequest& request) {
    switch (request.kind) {
      case GuardianRequest::Kind::start:
        extend_deadline(request);
        start(request);
        break;
      case GuardianRequest::Kind::extend_deadline:
        extend_deadline(request);
        break;
      case GuardianRequest::Kind::lock_is_gone:
        if (state_ != State::idle) start_killing(Reason::lock);
        break;
      case GuardianRequest::Kind::forward:
        if (state_ != State::idle) forward(request);
        break;
      case GuardianRequest::Kind::resume:
        resume_requested_ = true;
        break;
    }
  }

  // Renewals only extend the deadline, and may arrive before the start. A command that was terminated because of its
  // lock must end, even if a renewal arrives now.
  void extend_deadline(const GuardianRequest& request) {
    if (reason_ != Reason::lock) deadline_ = std::max(deadline_, Time(BootClock::duration(request.deadline)));
  }

  void start(const GuardianRequest& request) {
    if (BootClock::now() >= deadline_)
      finish_with({.kind = Report::Kind::not_started, .value = ETIME, .lock_lost = true});
    if (config_.url) {
      // setenv would replace only the first of several.
      unsetenv("SYNCGUARD_URL");
      setenv("SYNCGUARD_URL", config_.url->c_str(), 1);
    }
    setenv("SYNCGUARD_KEY", config_.key.c_str(), 1);
    setenv("SYNCGUARD_LOCK_ID", request.lock_id.data(), 1);
    setenv("SYNCGUARD_FENCE", request.fence.data(), 1);
    std::vector<char*> arguments;
    for (const auto& argument : config_.command) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    starts_in_foreground_ = terminal_.is_for_command();
    if (starts_in_foreground_) terminal_.remember_mode();

    if (const int error = kill_at_exit_.prepare(); error != 0) not_started(error);
    const pid_t leader = fork();
    if (leader < 0) not_started(errno);
    if (leader == 0) exec_command(arguments.data());
    kill_at_exit_.close_read_end();
    group_ = ProcessGroup(leader);
    representative_ = leader;
    // Both processes do this, because either may run first.
    setpgid(leader, leader);
    state_ = State::running;
    if (config_.timeout > 0ms) timeout_at_ = BootClock::now() + config_.timeout;
  }

  // Between fork and exec: system calls only.
  [[noreturn]] void exec_command(char** arguments) const {
    setpgid(0, 0);
    // Of the command itself, even if it leaves its group.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    *exec_error_ = kill_at_exit_.kill_own_group();
    if (*exec_error_ != 0) _exit(127);
    // Sent by the command's process, because the guardian could be killed first: syncguard must know of every running
    // command.
    send_report({.kind = Report::Kind::started, .group = getpid()});
    if (starts_in_foreground_) terminal_.give_to(getpid());
    sigaction(SIGCHLD, &config_.child_action, nullptr);
    sigaction(SIGPIPE, &config_.pipe_action, nullptr);
    sigprocmask(SIG_SETMASK, &config_.signal_mask, nullptr);
    execvp(arguments[0], arguments);
    *exec_error_ = errno;
    _exit(127);
  }

  void on_syncguard_exit() {
    if (state_ == State::idle) _exit(0);
    close(socket_);
    socket_ = -1;
    if (state_ == State::running)
      start_terminating(Reason::lock, std::min(BootClock::now() + config_.kill_after, deadline_));
  }

  void check_deadline() {
    const auto time = BootClock::now();
    if (state_ == State::running && time >= deadline_ - config_.kill_after) start_terminating(Reason::lock, deadline_);
    // Processes that the command left in its group count as the command.
    if (state_ == State::running && time >= timeout_at_) {
      start_terminating(Reason::timeout, time + config_.kill_after_timeout);
    }
    if (state_ != State::terminating) return;
    if (time >= deadline_) {
      start_killing(Reason::lock);
    } else if (time >= kill_at_) {
      start_killing(reason_);
    }
  }

  void start_terminating(Reason reason, Time kill_at) {
    state_ = State::terminating;
    reason_ = reason;
    kill_at_ = kill_at;
    group_.send(SIGTERM);
  }

  void start_killing(Reason reason) {
    state_ = State::killing;
    reason_ = reason;
    group_.send(SIGKILL);
  }

  void resume() {
    resume_requested_ = false;
    check_deadline();
    if (state_ == State::killing) return;
    if (starts_in_foreground_ && terminal_.is_held_by_owner()) lend_terminal();
    group_.send(SIGCONT);
  }

  void lend_terminal() {
    terminal_.remember_mode();
    terminal_.give_to(group_.id());
  }

  void reap() {
    int status = 0;
    for (;;) {
      const pid_t child = waitpid(-1, &status, WNOHANG | WUNTRACED);
      if (child < 0 && errno == EINTR) continue;
      if (child <= 0) return;
      if (WIFSTOPPED(status)) {
        if (representative_ == 0 && getpgid(child) == group_.id()) representative_ = child;
        if (child == representative_) stopped_by(WSTOPSIG(status));
        continue;
      }
      if (child == representative_) representative_ = 0;
      if (child == group_.id()) {
        leader_ended_ = true;
        leader_status_ = status;
      }
    }
  }

  void stopped_by(int signal) {
    const bool wants_terminal = signal == SIGTTIN || signal == SIGTTOU;
    if (wants_terminal && terminal_.is_held_by_owner()) {
      lend_terminal();
      resume();
      return;
    }
    // A command that is stopped by SIGSTOP from outside does not affect the terminal; its lock is still renewed.
    const bool has_terminal = terminal_.is_held_by(group_.id());
    if (!wants_terminal && signal != SIGTSTP && !has_terminal) return;
    terminal_.take_back_from(group_.id());
    // Does not wait for a stopped syncguard: resuming it also resumes the command.
    send_report({.kind = Report::Kind::stopped, .group = group_.id(), .value = signal}, MSG_DONTWAIT);
  }

  [[noreturn]] void finish() const {
    const bool had_terminal = terminal_.is_held_by(group_.id());
    // A killed command could not reset the mode that it had set, such as raw input.
    if (WIFSIGNALED(leader_status_) || reason_ != Reason::none) terminal_.restore_mode_after(group_.id());
    terminal_.take_back_from(group_.id());
    if (*exec_error_ != 0) {
      finish_with({.kind = Report::Kind::not_started, .group = group_.id(), .value = *exec_error_});
    }
    finish_with({.kind = Report::Kind::ended,
                 .group = group_.id(),
                 .value = leader_status_,
                 .lock_lost = reason_ == Reason::lock,
                 .timed_out = reason_ == Reason::timeout,
                 .had_terminal = had_terminal});
  }

  [[noreturn]] void not_started(int error) const { finish_with({.kind = Report::Kind::not_started, .value = error}); }

  [[noreturn]] void finish_with(const Report& report) const {
    send_report(report);
    _exit(0);
  }

  void send_report(const Report& report, int flags = 0) const {
    if (socket_ >= 0) (void)send(socket_, &report, sizeof report, MSG_NOSIGNAL | flags);
  }

  void arm_timer() const {
    if (state_ == State::idle) return;
    Time next = Time::max();
    if (state_ == State::running) next = std::min(deadline_ - config_.kill_after, timeout_at_);
    if (state_ == State::terminating) next = std::min(deadline_, kill_at_);
    for (const auto& held : held_signals_) next = std::min(next, held.until);
    // Remaining members of the group may be children of another process, whose end is not reported here.
    if (leader_ended_ || state_ == State::killing) next = std::min(next, BootClock::now() + poll_interval);
    next = std::max(next, Time(BootClock::duration(1)));
    const auto seconds = std::chrono::floor<std::chrono::seconds>(next.time_since_epoch());
    itimerspec time{};
    time.it_value.tv_sec = seconds.count();
    time.it_value.tv_nsec = (next.time_since_epoch() - seconds).count();
    timerfd_settime(timer_, TFD_TIMER_ABSTIME, &time, nullptr);
  }

  int socket_;
  Terminal terminal_;
  const GuardianConfig& config_;
  int signals_ = -1;
  int timer_ = -1;
  int* exec_error_ = nullptr;

  State state_ = State::idle;
  Reason reason_ = Reason::none;
  ProcessGroup group_;
  KillAtExit kill_at_exit_;
  std::array<Copy, NSIG> copies_{};
  std::vector<HeldSignal> held_signals_;
  // The child of this process whose stops count as stops of the whole group: the leader, then one of the processes that
  // it left behind. Zero: the next one that stops.
  pid_t representative_ = 0;
  bool leader_ended_ = false;
  int leader_status_ = 0;
  bool resume_requested_ = false;
  // Otherwise it gets the terminal only when it needs it, because other parts of a pipeline may need it, too.
  bool starts_in_foreground_ = false;
  Time deadline_{};
  Time kill_at_{};
  Time timeout_at_ = Time::max();
};

}  // namespace

void guard(int socket, pid_t parent_group, const GuardianConfig& config) { Guard(socket, parent_group, config).run(); }

}  // namespace syncguard::command
