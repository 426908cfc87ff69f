#include "command/guardian.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace syncguard::command {
namespace {

void send_request(int socket, const GuardianRequest& request) {
  // Does not block: a stopped guardian must not delay renewals.
  (void)send(socket, &request, sizeof request, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void copy_text(const std::string& text, std::array<char, 32>& place) {
  std::copy_n(text.begin(), std::min(text.size(), place.size() - 1), place.begin());
}

}  // namespace

Guardian::Guardian(const GuardianConfig& config) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot create a socket for the guardian process");
  }
  const pid_t parent_group = getpgrp();
  process_ = fork();
  if (process_ < 0) throw std::system_error(errno, std::generic_category(), "cannot start the guardian process");
  if (process_ == 0) {
    close(ends[0]);
    guard(ends[1], parent_group, config);
  }
  close(ends[1]);
  socket_ = ends[0];
}

Guardian::~Guardian() {
  close(socket_);
  for (;;) {
    int status = 0;
    const pid_t changed = waitpid(process_, &status, WUNTRACED);
    if (changed == process_ && WIFSTOPPED(status)) {
      kill(process_, SIGCONT);
    } else if (changed == process_ || errno != EINTR) {
      return;
    }
  }
}

void Guardian::start(BootClock::time_point deadline, const std::string& lock_id, const std::string& fence) const {
  GuardianRequest request{.kind = GuardianRequest::Kind::start, .deadline = deadline.time_since_epoch().count()};
  copy_text(lock_id, request.lock_id);
  copy_text(fence, request.fence);
  send_request(socket_, request);
}

void Guardian::extend_deadline(BootClock::time_point deadline) const {
  send_request(socket_,
               {.kind = GuardianRequest::Kind::extend_deadline, .deadline = deadline.time_since_epoch().count()});
}

void Guardian::lock_is_gone() const { send_request(socket_, {.kind = GuardianRequest::Kind::lock_is_gone}); }

void Guardian::forward(int signal, pid_t sender) const {
  send_request(socket_, {.kind = GuardianRequest::Kind::forward, .signal = signal, .sender = sender});
}

void Guardian::continue_if_stopped() const {
  siginfo_t stop{};
  if (waitid(P_PID, static_cast<id_t>(process_), &stop, WSTOPPED | WNOHANG) == 0 && stop.si_pid == process_) {
    kill(process_, SIGCONT);
  }
}

void Guardian::resume() const { send_request(socket_, {.kind = GuardianRequest::Kind::resume}); }

std::optional<Report> Guardian::receive() const {
  Report report{};
  ssize_t length = 0;
  do {
    length = recv(socket_, &report, sizeof report, 0);
    // ECONNRESET means that the guardian ended without reading all requests. Its earlier reports can still be read.
  } while (length < 0 && (errno == EINTR || errno == ECONNRESET));
  if (length != static_cast<ssize_t>(sizeof report)) return std::nullopt;
  return report;
}

}  // namespace syncguard::command
