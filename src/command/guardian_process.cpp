#include "command/guardian_process.hpp"

#include "command/guardian_messages.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>

namespace syncguard::command {
namespace {

using namespace std::chrono_literals;

// How often to look whether anything of a group is left whose members are not our own children.
constexpr BootTime look_again = 20ms;

BootTime now() {
  timespec time{};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// The terminal that controls this session, as a shell would use it for its jobs.
class Terminal {
 public:
  explicit Terminal(pid_t home_group) : home_group_(home_group), descriptor_(open("/dev/tty", O_RDWR | O_CLOEXEC)) {}

  // Whether a command should begin in the foreground. Not if it is one part of a pipeline: then the others may need the
  // terminal, and it gets it when it asks.
  [[nodiscard]] bool is_for(pid_t group) const {
    return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 && foreground() == group;
  }
  [[nodiscard]] bool is_home() const { return descriptor_ >= 0 && foreground() == home_group_; }
  [[nodiscard]] bool is_with(pid_t group) const { return descriptor_ >= 0 && foreground() == group; }
  // SIGTTOU is blocked here, which lets a process of the background do it.
  void give_to(pid_t group) const {
    if (descriptor_ >= 0) (void)tcsetpgrp(descriptor_, group);
  }
  void take_back_from(pid_t group) const {
    if (is_with(group)) give_to(home_group_);
  }

 private:
  [[nodiscard]] pid_t foreground() const { return tcgetpgrp(descriptor_); }

  const pid_t home_group_;
  const int descriptor_;
};

// States, and what leads from one to the next:
//
//   idle         start                                   running
//                syncguard is gone                       the end
//   running      kill_after before the deadline          terminating: SIGTERM; SIGKILL at the deadline
//                syncguard is gone                       terminating: SIGTERM; SIGKILL after kill_after, or at the
//                                                        deadline if that is sooner
//                the lock is gone, or the deadline is    killing: SIGKILL, again and again
//   terminating  the same, or its time is over           killing
//   any of them  nothing of the group is left            the end, with a report
class Guard {
 public:
  Guard(int socket, pid_t home_group, const Charge& charge)
      : socket_(socket), terminal_(home_group), home_group_(home_group), charge_(charge) {}

  [[noreturn]] void run() {
    prepare();
    for (;;) {
      pollfd sources[] = {{.fd = socket_, .events = POLLIN, .revents = 0},
                          {.fd = signals_, .events = POLLIN, .revents = 0},
                          {.fd = timer_, .events = POLLIN, .revents = 0}};
      arm_timer();
      (void)poll(sources, std::size(sources), -1);
      signalfd_siginfo ignored_signal;
      while (read(signals_, &ignored_signal, sizeof ignored_signal) > 0) {
      }
      // Renewals that wait to be read count before the deadline is looked at, and that before the command goes on.
      read_orders();
      if (state_ == State::idle) continue;
      look_at_deadline();
      if (go_on_asked_) go_on();
      reap();
      if (state_ == State::killing) kill(-group_, SIGKILL);
      if (leader_ended_ && group_is_empty()) finish();
    }
  }

 private:
  enum class State { idle, running, terminating, killing };

  void prepare() {
    // Ctrl-C, Ctrl-Z and signals for the whole job of a shell are not for the guardian.
    setpgid(0, 0);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    // A parent that ignores the end of its children would not learn how they ended.
    struct sigaction by_default {};
    by_default.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &by_default, &original_child_action_);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NAME, "syncguard-guard");

    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    signals_ = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    timer_ = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    // Written by the command's process where its exec fails.
    void* shared = mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (signals_ < 0 || timer_ < 0 || shared == MAP_FAILED) not_started(errno);
    exec_error_ = static_cast<int*>(shared);
  }

  void read_orders() {
    while (socket_ >= 0) {
      Order order{};
      const ssize_t length = recv(socket_, &order, sizeof order, MSG_DONTWAIT);
      if (length == static_cast<ssize_t>(sizeof order)) {
        obey(order);
      } else if (length < 0 && (errno == EINTR || errno == ECONNRESET)) {
        // Reset: syncguard ended without having read everything. What it said before that is still there.
        continue;
      } else if (length < 0 && errno == EAGAIN) {
        return;
      } else {
        syncguard_is_gone();
      }
    }
  }

  void obey(const Order& order) {
    switch (order.kind) {
      case Order::Kind::start:
        prolong(order);
        start(order);
        break;
      case Order::Kind::prolong:
        prolong(order);
        break;
      case Order::Kind::lock_is_gone:
        if (state_ != State::idle) begin_to_kill();
        break;
      case Order::Kind::forward:
        if (state_ != State::idle) kill(-group_, order.signal);
        break;
      case Order::Kind::go_on:
        go_on_asked_ = true;
        break;
    }
  }

  // Renewals only ever prolong, and may be told before the start; and who was told to end has to, whatever comes now.
  void prolong(const Order& order) {
    if (state_ == State::idle || state_ == State::running) deadline_ = std::max(deadline_, BootTime(order.deadline));
  }

  void start(const Order& order) {
    if (now() >= deadline_) finish_with({.kind = Report::Kind::not_started, .value = ETIME, .lock_lost = true});
    setenv("SYNCGUARD_KEY", charge_.key.c_str(), 1);
    setenv("SYNCGUARD_LOCK_ID", order.lock_id.data(), 1);
    setenv("SYNCGUARD_FENCE", order.fence.data(), 1);
    std::vector<char*> arguments;
    for (const auto& argument : charge_.command) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    terminal_wanted_ = terminal_.is_for(home_group_);

    const pid_t guardian = getpid();
    group_ = fork();
    if (group_ < 0) not_started(errno);
    if (group_ == 0) become_the_command(guardian, arguments.data());
    // Both do it, because nobody knows who comes first.
    setpgid(group_, group_);
    state_ = State::running;
  }

  // Between fork and exec: system calls only.
  [[noreturn]] void become_the_command(pid_t guardian, char** arguments) const {
    setpgid(0, 0);
    // Should somebody kill the guardian, the command goes with it.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != guardian) _exit(1);
    // Not the guardian, who could be killed before it does: nothing may run that syncguard does not know of.
    send_report({.kind = Report::Kind::started, .group = getpid()});
    if (terminal_wanted_) terminal_.give_to(getpid());
    sigaction(SIGCHLD, &original_child_action_, nullptr);
    sigprocmask(SIG_SETMASK, &charge_.signal_mask, nullptr);
    execvp(arguments[0], arguments);
    *exec_error_ = errno;
    _exit(127);
  }

  void syncguard_is_gone() {
    if (state_ == State::idle) _exit(0);
    close(socket_);
    socket_ = -1;
    if (state_ == State::running) begin_to_terminate(std::min(now() + charge_.kill_after, deadline_));
  }

  void look_at_deadline() {
    const auto time = now();
    if (state_ == State::running && time >= deadline_ - charge_.kill_after) begin_to_terminate(deadline_);
    if (state_ == State::terminating && time >= kill_at_) begin_to_kill();
  }

  void begin_to_terminate(BootTime kill_at) {
    state_ = State::terminating;
    kill_at_ = kill_at;
    kill(-group_, SIGTERM);
  }

  void begin_to_kill() {
    state_ = State::killing;
    kill(-group_, SIGKILL);
  }

  void go_on() {
    go_on_asked_ = false;
    look_at_deadline();
    if (state_ == State::killing) return;
    if (terminal_wanted_ && terminal_.is_home()) terminal_.give_to(group_);
    kill(-group_, SIGCONT);
  }

  void reap() {
    int status = 0;
    for (;;) {
      const pid_t child = waitpid(-1, &status, WNOHANG | WUNTRACED);
      if (child < 0 && errno == EINTR) continue;
      if (child <= 0) return;
      // Others are what the command left behind.
      if (child != group_) continue;
      if (WIFSTOPPED(status)) {
        stopped_by(WSTOPSIG(status));
      } else {
        leader_ended_ = true;
        leader_status_ = status;
      }
    }
  }

  void stopped_by(int signal) {
    const bool wants_terminal = signal == SIGTTIN || signal == SIGTTOU;
    if (wants_terminal) terminal_wanted_ = true;
    if (wants_terminal && terminal_.is_home()) {
      go_on();
      return;
    }
    // Whoever is stopped from outside, by SIGSTOP, is no affair of the terminal's: its lock is renewed meanwhile.
    const bool has_terminal = terminal_.is_with(group_);
    if (!wants_terminal && signal != SIGTSTP && !has_terminal) return;
    terminal_.take_back_from(group_);
    // Does not wait for a syncguard that is stopped itself: whoever lets that go on lets the command go on, too.
    send_report({.kind = Report::Kind::stopped, .group = group_, .value = signal}, MSG_DONTWAIT);
  }

  [[nodiscard]] bool group_is_empty() const { return kill(-group_, 0) != 0 && errno == ESRCH; }

  [[noreturn]] void finish() const {
    const bool had_terminal = terminal_.is_with(group_);
    terminal_.take_back_from(group_);
    if (*exec_error_ != 0) {
      finish_with({.kind = Report::Kind::not_started, .group = group_, .value = *exec_error_});
    }
    finish_with({.kind = Report::Kind::ended,
                 .group = group_,
                 .value = leader_status_,
                 .lock_lost = state_ != State::running,
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
    BootTime next = BootTime::max();
    if (state_ == State::running) next = deadline_ - charge_.kill_after;
    if (state_ == State::terminating) next = kill_at_;
    // What is left of the group may be somebody else's child, whose end nobody tells us.
    if (leader_ended_ || state_ == State::killing) next = std::min(next, now() + look_again);
    next = std::max(next, BootTime(1));
    const auto seconds = std::chrono::floor<std::chrono::seconds>(next);
    itimerspec time{};
    time.it_value.tv_sec = seconds.count();
    time.it_value.tv_nsec = (next - seconds).count();
    timerfd_settime(timer_, TFD_TIMER_ABSTIME, &time, nullptr);
  }

  int socket_;
  const Terminal terminal_;
  const pid_t home_group_;
  const Charge& charge_;
  int signals_ = -1;
  int timer_ = -1;
  int* exec_error_ = nullptr;
  struct sigaction original_child_action_ {};

  State state_ = State::idle;
  pid_t group_ = 0;
  bool leader_ended_ = false;
  int leader_status_ = 0;
  bool go_on_asked_ = false;
  bool terminal_wanted_ = false;
  BootTime deadline_{};
  BootTime kill_at_{};
};

}  // namespace

void guard(int socket, pid_t home_group, const Charge& charge) { Guard(socket, home_group, charge).run(); }

}  // namespace syncguard::command
