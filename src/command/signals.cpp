#include "command/signals.hpp"

#include <csignal>
#include <thread>
#include <utility>

namespace syncguard::command {

std::stop_token stop_on_signals() {
  sigset_t ending;
  sigemptyset(&ending);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ending, signal);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  std::stop_source stop;
  auto token = stop.get_token();
  // Ends with the process.
  std::thread([ending, stop = std::move(stop)]() mutable {
    int received = 0;
    sigwait(&ending, &received);
    stop.request_stop();
  }).detach();
  return token;
}

}  // namespace syncguard::command
