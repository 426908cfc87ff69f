#include "command/run.hpp"

#include "command/commands.hpp"
#include "command/guardian.hpp"
#include "command/process_group.hpp"
#include "command/signals.hpp"
#include "command/terminal.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

namespace syncguard::command {
namespace {

// How the command's process group ended.
struct End {
  bool started;
  int value = 0;  // the status from waitpid, or an errno if the command was not started
  bool lock_lost = false;
  bool timed_out = false;
  // The guardian was killed, and the group with it.
  bool guardian_killed = false;
  // A signal to this process, or Ctrl-C, asked it to end.
  bool interrupted = false;
};

// Signals by which a shell or service manager ends a job: it expects the process to die of the same signal.
bool ends_jobs(int signal) { return signal == SIGINT || signal == SIGQUIT || signal == SIGTERM || signal == SIGHUP; }

// Forwards signals to the command, and stops with it, until it has ended.
class Supervisor {
 public:
  explicit Supervisor(const Guardian& guardian) : guardian_(guardian) {
    forwarded_ = not_ignored({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGWINCH, SIGALRM});
    sigset_t blocked = forwarded_;
    sigaddset(&blocked, SIGCONT);
    sigaddset(&blocked, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
    signals_ = signalfd(-1, &blocked, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals_ < 0) throw std::system_error(errno, std::generic_category(), "cannot wait for signals");
    terminal_.remember_mode();
  }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor() {
    close(signals_);
    // These signals act on this process again.
    sigset_t ours = not_ignored({SIGTSTP, SIGQUIT});
    pthread_sigmask(SIG_UNBLOCK, &ours, nullptr);
  }

  End wait_until_done() {
    End end = wait_for_end();
    // Signals that arrived too late for the command must not end this process.
    while (next_signal()) {
    }
    end.interrupted = interrupted_;
    return end;
  }

 private:
  End wait_for_end() {
    for (;;) {
      pollfd sources[] = {{.fd = guardian_.descriptor(), .events = POLLIN, .revents = 0},
                          {.fd = signals_, .events = POLLIN, .revents = 0}};
      if (poll(sources, 2, -1) < 0) continue;
      if (sources[1].revents != 0) forward_signals();
      if (sources[0].revents == 0) continue;
      const auto report = guardian_.receive();
      if (!report) return guardian_was_killed();
      switch (report->kind) {
        case Report::Kind::started:
          group_ = ProcessGroup(report->group);
          break;
        case Report::Kind::stopped:
          stop_job(report->value);
          break;
        case Report::Kind::not_started:
          return {.started = false, .value = report->value, .lock_lost = report->lock_lost};
        case Report::Kind::ended:
          if (report->had_terminal) signal_own_job(report->value);
          return {
              .started = true, .value = report->value, .lock_lost = report->lock_lost, .timed_out = report->timed_out};
      }
    }
  }

  std::optional<signalfd_siginfo> next_signal() {
    signalfd_siginfo received{};
    if (read(signals_, &received, sizeof received) <= 0) return std::nullopt;
    if (ends_jobs(static_cast<int>(received.ssi_signo))) interrupted_ = true;
    return received;
  }

  void forward_signals() {
    while (const auto received = next_signal()) {
      const int signal = static_cast<int>(received->ssi_signo);
      if (signal == SIGCHLD) {
        guardian_.continue_if_stopped();
      } else if (signal == SIGCONT) {
        guardian_.resume();
      } else {
        guardian_.forward(signal, received->ssi_code == SI_KERNEL ? no_sender : static_cast<pid_t>(received->ssi_pid));
      }
    }
  }

  // Stops this process as its shell expects of a job. Continues when the process is resumed, or soon if it was not
  // stopped: the system does not stop a process without job control.
  void stop_job(int reason) const {
    // Unlike SIGSTOP, SIGTSTP stops this process only if a shell can resume it.
    const int signal = reason == SIGSTOP ? SIGTSTP : reason;
    sigset_t single_signal;
    sigemptyset(&single_signal);
    sigaddset(&single_signal, signal);
    // The terminal would have signaled the whole job, including an enclosing script.
    kill(0, signal);
    pthread_sigmask(SIG_UNBLOCK, &single_signal, nullptr);
    if (sigismember(&forwarded_, signal) == 1) pthread_sigmask(SIG_BLOCK, &single_signal, nullptr);
    // If nothing stopped this process, a command that needs the terminal would request it again immediately, in a loop.
    pollfd sources[] = {{.fd = guardian_.descriptor(), .events = POLLIN, .revents = 0},
                        {.fd = signals_, .events = POLLIN, .revents = 0}};
    const std::chrono::milliseconds pause(signal == SIGTSTP ? 0 : 1000);
    poll(sources, 2, static_cast<int>(pause.count()));
    // The SIGCONT that resumed this process must not reach the command twice.
    sigset_t continued;
    sigemptyset(&continued);
    sigaddset(&continued, SIGCONT);
    const timespec no_time{};
    const bool was_stopped = sigtimedwait(&continued, nullptr, &no_time) == SIGCONT;
    // A command that was stopped from outside is also resumed from outside. Its lock is still renewed.
    if (reason == SIGSTOP && !was_stopped) return;
    guardian_.resume();
  }

  // Ctrl-C was meant for the whole job, including an enclosing script, but only the command, which has the terminal,
  // received it.
  void signal_own_job(int status) const {
    if (!WIFSIGNALED(status)) return;
    const int signal = WTERMSIG(status);
    if (signal == SIGINT || signal == SIGQUIT) kill(0, signal);
  }

  // The kernel has killed the group, whose processes are now children of this process or of each other. The guardian
  // can no longer take the terminal back, either.
  End guardian_was_killed() {
    while (!group_.is_empty()) {
      group_.send(SIGKILL);
      while (waitpid(-1, nullptr, WNOHANG) > 0) {
      }
      poll(nullptr, 0, 10);
    }
    sigset_t background_change;
    sigemptyset(&background_change);
    sigaddset(&background_change, SIGTTOU);
    pthread_sigmask(SIG_BLOCK, &background_change, nullptr);
    terminal_.restore_mode_after(group_.id());
    terminal_.take_back_from(group_.id());
    return {.started = group_.id() != 0, .guardian_killed = true};
  }

  const Guardian& guardian_;
  sigset_t forwarded_;
  int signals_ = -1;
  bool interrupted_ = false;
  ProcessGroup group_;
  Terminal terminal_{getpgrp()};
};

std::string name_of(const std::string& command) { return std::filesystem::path(command).filename().string(); }

// Programs that run other programs: as a key, their name would lock out unrelated jobs.
bool runs_other_programs(std::string name) {
  // python3, python3.11, bash-5.2
  name.erase(name.find_last_not_of("0123456789.-") + 1);
  constexpr std::array names = {
      "ash",     "bash", "bun",     "busybox", "chroot", "chrt",   "csh",       "dash",        "deno",    "doas",
      "docker",  "env",  "fish",    "flock",   "gmake",  "ionice", "java",      "just",        "kubectl", "ksh",
      "lua",     "make", "mksh",    "nice",    "ninja",  "node",   "nodejs",    "nohup",       "npm",     "npx",
      "nsenter", "perl", "php",     "podman",  "pwsh",   "python", "ruby",      "runuser",     "setpriv", "setsid",
      "sh",      "ssh",  "stdbuf",  "strace",  "su",     "sudo",   "syncguard", "systemd-run", "taskset", "tclsh",
      "tcsh",    "time", "timeout", "uv",      "watch",  "xargs",  "yarn",      "zsh"};
  return std::ranges::find(names, name) != names.end();
}

// The key for the job; throws if --key is required.
Key chosen_key(const RunArguments& arguments) {
  if (arguments.key) return Key(*arguments.key);
  const auto name = name_of(arguments.command.at(0));
  if (runs_other_programs(name)) {
    throw LockError(
        ErrorCode::invalid_argument,
        "'" + name + "' can run any program, so its name does not identify the job: choose a key with --key");
  }
  return Key(name);
}

// Waits for the given time, or until either token is stopped.
void wait_unless_stopped(std::chrono::nanoseconds duration, const std::stop_token& one,
                         const std::stop_token& another = {}) {
  std::mutex mutex;
  std::condition_variable_any changed;
  const std::stop_callback wake(another, [&] {
    const std::lock_guard woken(mutex);
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  changed.wait_for(lock, one, duration, [&] { return another.stop_requested(); });
}

// Returns whether the lock was held to the end.
bool was_held_at_release(Lease& lease, const Output& output, const std::stop_token& stop) {
  try {
    try {
      return lease.release_with_retries(stop);
    } catch (const LockError& error) {
      if (error.code() != ErrorCode::aborted) throw;
      // A signal ends the retries, but one attempt is always made.
      return lease.release() || !lease.lost_reason();
    }
  } catch (const LockError& error) {
    // The command ended while the lock was held, so this is a success. The lock expires.
    output.note("cannot release the lock; it stays held until its ttl is over: " + message_with_causes(error));
    if (lease) lease.detach();
    return true;
  }
}

struct Result {
  int exit_code;
  int killed_by = 0;  // the signal that ended the command, or the wait after it
};

Result run_locked(const std::string& url, const ClientOptions& options, const RunArguments& arguments,
                  const Output& output) {
  const Key key = chosen_key(arguments);
  GuardianConfig config{.command = arguments.command,
                        .key = key.str(),
                        .kill_after = std::min(arguments.kill_after, arguments.ttl / 3),
                        .timeout = arguments.timeout,
                        .kill_after_timeout = arguments.kill_after,
                        .url = arguments.url_of_command,
                        .pipe_action = arguments.pipe_action};
  // SIGCHLD reports a stopped guardian. Other threads must not discard it, and an inherited SIG_IGN would suppress it.
  sigset_t child_changes;
  sigemptyset(&child_changes);
  sigaddset(&child_changes, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &child_changes, &config.signal_mask);
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &by_default, &config.child_action);
  // If the guardian is killed, its children become children of this process, which waits until they have ended.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const Guardian guardian(config);
  quiet_grpc(output);

  auto client_options = options;
  client_options.callbacks.on_extended = [&](const ExtendContext& extended) {
    guardian.extend_deadline(extended.deadline);
  };
  // Outlives the client, so that a second Ctrl-C also interrupts closing.
  StopOnSignals signals;
  const auto interrupted = signals.token();
  auto locks = open(url, client_options);
  const AcquireOptions wanted{.ttl = arguments.ttl, .auto_extend = true};
  auto lease = wait_for_lock(locks, key, wanted, arguments.wait, output, interrupted);
  // From here on no thread consumes signals: the next one is for the command.
  signals.pause();
  if (interrupted.stop_requested()) {
    signals.resume();
    if (lease) was_held_at_release(*lease, output, interrupted);
    throw LockError(ErrorCode::aborted, "interrupted");
  }
  if (!lease) {
    output.result({{"ok", false}, {"reason", "locked"}}, "");
    return {.exit_code = arguments.conflict_exit_code};
  }

  output.detail("acquired with fence " + lease->fence().str() + " until " + local_time(lease->expires_at()) +
                " unless it is extended");
  const auto hold_until = BootClock::now() + arguments.at_least;
  const End end = [&] {
    Supervisor supervisor(guardian);
    guardian.start(lease->deadline(), lease->id().str(), lease->fence().str());
    const std::stop_callback when_lost(lease->lost(), [&] { guardian.lock_is_gone(); });
    return supervisor.wait_until_done();
  }();
  signals.resume();

  const int killed_by = end.started && WIFSIGNALED(end.value) ? WTERMSIG(end.value) : 0;
  bool held_long_enough = true;
  if (end.started && !end.lock_lost && !end.interrupted && BootClock::now() < hold_until) {
    output.detail("the command has ended; holding the lock for --at-least");
    wait_unless_stopped(hold_until - BootClock::now(), interrupted, lease->lost());
    held_long_enough = !lease->lost().stop_requested();
  }

  if (end.guardian_killed) {
    was_held_at_release(*lease, output, interrupted);
    throw LockError(ErrorCode::internal, "the guardian process was killed, which also killed the command");
  }
  nlohmann::ordered_json object = {{"ok", true},
                                   {"lockId", lease->id().str()},
                                   {"fence", lease->fence().str()},
                                   {"expiresAtMs", lease->expires_at().time_since_epoch().count()}};
  Result result{};
  if (end.lock_lost) {
    // The lock is gone, or is about to expire.
    lease->detach();
  }
  if (end.lock_lost || !was_held_at_release(*lease, output, interrupted)) {
    result.exit_code = arguments.lost_exit_code;
    object = {{"ok", false}, {"reason", "lost"}};
    output.error_line(
        end.lock_lost ? "the lock was lost and the command was killed"
        : held_long_enough
            ? "the lock was already gone when the command ended: another holder may have run at the same time"
            : "the lock was lost after the command ended, before --at-least had passed");
  } else if (!end.started) {
    result.exit_code = end.value == ENOENT ? exit_not_found : exit_not_executable;
    object = {{"ok", false}, {"reason", "not-started"}};
    output.error_line(arguments.command[0] + ": " + std::generic_category().message(end.value));
  } else if (end.timed_out) {
    result.exit_code = exit_timed_out;
    object = {{"ok", false}, {"reason", "timeout"}};
    output.error_line("the command exceeded --timeout and was terminated");
  } else if (WIFEXITED(end.value)) {
    result.exit_code = WEXITSTATUS(end.value);
  } else {
    result.exit_code = 128 + killed_by;
    if (ends_jobs(killed_by)) result.killed_by = killed_by;
  }
  if (interrupted.stop_requested() && result.killed_by == 0) {
    result.killed_by = StopOnSignals::received();
    result.exit_code = 128 + result.killed_by;
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

std::string default_key(const std::vector<std::string>& command) { return name_of(command.at(0)); }

}  // namespace syncguard::command
