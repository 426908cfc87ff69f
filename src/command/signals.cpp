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

StopOnSignals::StopOnSignals() : end_(eventfd(0, EFD_CLOEXEC)) {
  const sigset_t ending = not_ignored({SIGINT, SIGTERM, SIGHUP});
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  const int signals = signalfd(-1, &ending, SFD_CLOEXEC);
  if (end_ < 0 || signals < 0) throw std::system_error(errno, std::generic_category(), "cannot wait for signals");
  thread_ = std::thread([signals, end = end_, stop = stop_]() mutable {
    pollfd sources[] = {{.fd = signals, .events = POLLIN, .revents = 0}, {.fd = end, .events = POLLIN, .revents = 0}};
    while (poll(sources, 2, -1) < 0 || sources[0].revents != 0) {
      signalfd_siginfo received{};
      if (sources[0].revents == 0 || read(signals, &received, sizeof received) <= 0) continue;
      const int signal = static_cast<int>(received.ssi_signo);
      if (stop.stop_requested()) die_by(signal);
      received_signal = signal;
      stop.request_stop();
    }
    close(signals);
  });
}

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
  if (const int signal = StopOnSignals::received(); signal != 0) end_by(signal);
  return exit_interrupted;
}

StopOnSignals::~StopOnSignals() {
  eventfd_write(end_, 1);
  thread_.join();
  close(end_);
}

}  // namespace syncguard::command
