#include "command/run.hpp"

#include "command/commands.hpp"
#include "command/guardian.hpp"
#include "command/signals.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

namespace syncguard::command {
namespace {

// The command's group is gone; what to make of it.
struct End {
  bool started;
  int value;  // what waitpid said, or an errno if it was not started
  bool lock_lost;
};

// Passes signals on to the command, and stops when it does, until it has ended.
class Supervisor {
 public:
  explicit Supervisor(const Guardian& guardian) : guardian_(guardian) {
    passed_on_ = not_ignored({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGWINCH, SIGALRM});
    sigset_t blocked = passed_on_;
    sigaddset(&blocked, SIGCONT);
    pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
    signals_ = signalfd(-1, &blocked, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals_ < 0) throw std::system_error(errno, std::generic_category(), "waiting for signals");
  }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor() { close(signals_); }

  End wait_for_the_end() {
    for (;;) {
      pollfd sources[] = {{.fd = guardian_.descriptor(), .events = POLLIN, .revents = 0},
                          {.fd = signals_, .events = POLLIN, .revents = 0}};
      if (poll(sources, 2, -1) < 0) continue;
      if (sources[1].revents != 0) pass_signals_on();
      if (sources[0].revents == 0) continue;
      const auto report = guardian_.receive();
      if (!report) guardian_was_killed();
      switch (report->kind) {
        case Report::Kind::started:
          group_ = report->group;
          break;
        case Report::Kind::stopped:
          stop_by(report->value);
          break;
        case Report::Kind::not_started:
          return {.started = false, .value = report->value, .lock_lost = report->lock_lost};
        case Report::Kind::ended:
          if (report->had_terminal) tell_the_rest_of_the_job(report->value);
          return {.started = true, .value = report->value, .lock_lost = report->lock_lost};
      }
    }
  }

 private:
  void pass_signals_on() const {
    signalfd_siginfo received{};
    while (read(signals_, &received, sizeof received) > 0) {
      const int signal = static_cast<int>(received.ssi_signo);
      if (signal == SIGCONT) {
        guardian_.go_on();
      } else {
        guardian_.forward(signal);
      }
    }
  }

  // As the shell that started us expects of a job. Goes on when somebody continues us, or soon where nobody could: the
  // system does not stop what no shell watches.
  void stop_by(int reason) const {
    // Unlike SIGSTOP, it stops us only where somebody is there to let us go on.
    const int signal = reason == SIGSTOP ? SIGTSTP : reason;
    sigset_t this_one;
    sigemptyset(&this_one);
    sigaddset(&this_one, signal);
    // The terminal would have told the whole job, such as a script that we are a part of.
    kill(0, signal);
    pthread_sigmask(SIG_UNBLOCK, &this_one, nullptr);
    if (sigismember(&passed_on_, signal) == 1) pthread_sigmask(SIG_BLOCK, &this_one, nullptr);
    // If nothing stopped us, a command that wants the terminal would ask for it again at once, and again.
    pollfd sources[] = {{.fd = guardian_.descriptor(), .events = POLLIN, .revents = 0},
                        {.fd = signals_, .events = POLLIN, .revents = 0}};
    constexpr int a_second = 1000;
    poll(sources, 2, signal == SIGTSTP ? 0 : a_second);
    // What continued us need not be told to the command twice.
    sigset_t continued;
    sigemptyset(&continued);
    sigaddset(&continued, SIGCONT);
    const timespec no_time{};
    const bool were_stopped = sigtimedwait(&continued, nullptr, &no_time) == SIGCONT;
    // Whoever stopped the command from outside lets it go on, too. Its lock is renewed meanwhile.
    if (reason == SIGSTOP && !were_stopped) return;
    guardian_.go_on();
  }

  // Ctrl-C was meant for the whole job, such as a script that we are a part of; but only the command, which has the
  // terminal, was told.
  void tell_the_rest_of_the_job(int status) const {
    if (!WIFSIGNALED(status)) return;
    const int signal = WTERMSIG(status);
    if (signal == SIGINT || signal == SIGQUIT) kill(0, signal);
  }

  // Its children are ours now.
  [[noreturn]] void guardian_was_killed() const {
    while (group_ > 0 && (kill(-group_, SIGKILL) == 0 || errno != ESRCH)) {
      while (waitpid(-1, nullptr, WNOHANG) > 0) {
      }
      poll(nullptr, 0, 10);
    }
    throw LockError(ErrorCode::internal, "the guardian process was killed, and the command with it");
  }

  const Guardian& guardian_;
  sigset_t passed_on_;
  int signals_ = -1;
  pid_t group_ = 0;
};

std::string name_of(const std::string& command) { return std::filesystem::path(command).filename().string(); }

// Whether the lock was ours to the end.
bool give_back(Lease& lease, const Output& output) {
  try {
    return lease.release();
  } catch (const LockError& error) {
    // The command had ended in time. The ttl frees the lock.
    output.remark(std::string("the lock could not be released and is left to expire: ") + error.what());
    lease.detach();
    return true;
  }
}

struct Result {
  int exit_code;
  int killed_by = 0;  // the signal, if it was the terminal's
};

Result run_locked(const std::string& url, const ClientOptions& options, const RunArguments& arguments,
                  const Output& output) {
  const Key key(arguments.key ? *arguments.key : name_of(arguments.command.at(0)));
  Charge charge{.command = arguments.command,
                .key = key.str(),
                .kill_after = std::min(arguments.kill_after, arguments.ttl / 3),
                .signal_mask = {}};
  pthread_sigmask(SIG_SETMASK, nullptr, &charge.signal_mask);
  // Should the guardian be killed, its children become ours, to be killed too.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const Guardian guardian(charge);

  auto client_options = options;
  client_options.callbacks.on_extended = [&](const ExtendContext& extended) { guardian.prolong(extended.deadline); };
  std::optional<Locks> locks;
  std::optional<Lease> lease;
  std::stop_token interrupted;
  {
    const StopOnSignals signals;
    interrupted = signals.token();
    locks = open(url, client_options);
    const AcquireOptions wanted{.ttl = arguments.ttl, .auto_extend = true};
    lease = wait_for_lock(*locks, key, wanted, arguments.wait, output, interrupted);
  }
  // Only now does nobody take signals away any more: the next one is the command's.
  if (interrupted.stop_requested()) {
    if (lease) give_back(*lease, output);
    throw LockError(ErrorCode::aborted, "interrupted");
  }
  if (!lease) {
    output.result({{"ok", false}, {"reason", "locked"}}, "");
    return {.exit_code = arguments.conflict_exit_code};
  }

  output.detail("acquired with fence " + lease->fence().str() + " until " + local_time(lease->expires_at()) +
                " unless it is extended");
  Supervisor supervisor(guardian);
  guardian.start(lease->deadline(), lease->id().str(), lease->fence().str());
  const End end = [&] {
    const std::stop_callback when_lost(lease->lost(), [&] { guardian.lock_is_gone(); });
    return supervisor.wait_for_the_end();
  }();

  nlohmann::ordered_json object = {{"ok", true},
                                   {"lockId", lease->id().str()},
                                   {"fence", lease->fence().str()},
                                   {"expiresAtMs", lease->expires_at().time_since_epoch().count()}};
  Result result{};
  if (end.lock_lost) {
    // It is gone, or is about to expire.
    lease->detach();
  }
  if (end.lock_lost || !give_back(*lease, output)) {
    result.exit_code = arguments.lost_exit_code;
    object = {{"ok", false}, {"reason", "lost"}};
    output.error_line(end.lock_lost ? "the lock was lost, and the command was ended"
                                    : "the lock was gone when the command ended: others may have run beside it");
  } else if (!end.started) {
    result.exit_code = end.value == ENOENT ? exit_not_found : exit_not_executable;
    object = {{"ok", false}, {"reason", "not-started"}};
    output.error_line(arguments.command[0] + ": " + std::generic_category().message(end.value));
  } else if (WIFEXITED(end.value)) {
    result.exit_code = WEXITSTATUS(end.value);
  } else {
    const int signal = WTERMSIG(end.value);
    result.exit_code = 128 + signal;
    if (signal == SIGINT || signal == SIGQUIT) result.killed_by = signal;
  }
  object["exitCode"] = result.exit_code;
  output.result(object, "");
  return result;
}

}  // namespace

int run(const std::string& url, const ClientOptions& options, const RunArguments& arguments, const Output& output) {
  const auto result = run_locked(url, options, arguments, output);
  if (result.killed_by != 0) end_by(result.killed_by);
  return result.exit_code;
}

}  // namespace syncguard::command
