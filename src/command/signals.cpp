#include "command/signals.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>

namespace syncguard::command {
namespace {

std::atomic<int> received_signal = 0;

[[noreturn]] void die_by(int signal) {
  end_by(signal);
  _exit(128 + signal);
}

}  // namespace

void end_by(int signal) {
  // SIGQUIT would write a core file, although this process did not crash.
  prctl(PR_SET_DUMPABLE, 0);
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  sigaction(signal, &by_default, nullptr);
  sigset_t single_signal;
  sigemptyset(&single_signal);
  sigaddset(&single_signal, signal);
  raise(signal);
  pthread_sigmask(SIG_UNBLOCK, &single_signal, nullptr);
}

sigset_t not_ignored(std::initializer_list<int> signals) {
  sigset_t chosen;
  sigemptyset(&chosen);
  for (const int signal : signals) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&chosen, signal);
  }
  return chosen;
}

StopOnSignals::StopOnSignals() : changed_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  const sigset_t ending = not_ignored({SIGINT, SIGTERM, SIGHUP});
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  signals_ = signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK);
  if (changed_ < 0 || signals_ < 0) {
    throw std::system_error(errno, std::generic_category(), "cannot wait for signals");
  }
  // Other signals are for the main thread.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { read_signals(); });
  } catch (const std::system_error& error) {
    throw std::system_error(error.code(), "cannot start the thread that waits for signals");
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void StopOnSignals::read_signals() {
  for (;;) {
    std::unique_lock lock(mutex_);
    if (mode_ == Mode::ended) return;
    // A negative descriptor is ignored.
    pollfd sources[] = {{.fd = mode_ == Mode::reading ? signals_ : -1, .events = POLLIN, .revents = 0},
                        {.fd = changed_, .events = POLLIN, .revents = 0}};
    lock.unlock();
    poll(sources, 2, -1);
    lock.lock();
    eventfd_t changes = 0;
    eventfd_read(changed_, &changes);
    signalfd_siginfo received{};
    if (mode_ != Mode::reading || read(signals_, &received, sizeof received) <= 0) continue;
    const int signal = static_cast<int>(received.ssi_signo);
    if (stop_.stop_requested()) die_by(signal);
    received_signal = signal;
    stop_.request_stop();
  }
}

void StopOnSignals::change_mode(Mode mode) {
  {
    const std::lock_guard lock(mutex_);
    mode_ = mode;
  }
  eventfd_write(changed_, 1);
}

void StopOnSignals::pause() { change_mode(Mode::paused); }

void StopOnSignals::resume() { change_mode(Mode::reading); }

int StopOnSignals::received() noexcept { return received_signal; }

bool sleep_until_stopped(const std::stop_token& stop, std::chrono::steady_clock::duration at_most) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  return stopped.wait_for(lock, stop, at_most, [&] { return stop.stop_requested(); });
}

void sleep_until_stopped(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  stopped.wait(lock, stop, [] { return false; });
}

ExitCode end_by_received_signal() {
  const int signal = StopOnSignals::received();
  if (signal == 0) return exit_interrupted;
  end_by(signal);
  return static_cast<ExitCode>(128 + signal);
}

StopOnSignals::~StopOnSignals() {
  change_mode(Mode::ended);
  thread_.join();
  close(signals_);
  close(changed_);
}

}  // namespace syncguard::command
