#include "command/guardian.hpp"

#include "command/guardian_messages.hpp"
#include "command/guardian_process.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace syncguard::command {
namespace {

void send_order(int socket, const Order& order) {
  // Never waits: a guardian that is stopped must not hold up renewals.
  (void)send(socket, &order, sizeof order, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void copy_text(const std::string& text, std::array<char, 32>& place) {
  std::copy_n(text.begin(), std::min(text.size(), place.size() - 1), place.begin());
}

}  // namespace

Guardian::Guardian(const Charge& charge) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw std::system_error(errno, std::generic_category(), "a socket for the guardian");
  }
  const pid_t home_group = getpgrp();
  process_ = fork();
  if (process_ < 0) throw std::system_error(errno, std::generic_category(), "a process for the guardian");
  if (process_ == 0) {
    close(ends[0]);
    guard(ends[1], home_group, charge);
  }
  close(ends[1]);
  socket_ = ends[0];
}

Guardian::~Guardian() {
  close(socket_);
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guardian::start(BootTime deadline, const std::string& lock_id, const std::string& fence) const {
  Order order{.kind = Order::Kind::start, .deadline = deadline.count()};
  copy_text(lock_id, order.lock_id);
  copy_text(fence, order.fence);
  send_order(socket_, order);
}

void Guardian::prolong(BootTime deadline) const {
  send_order(socket_, {.kind = Order::Kind::prolong, .deadline = deadline.count()});
}

void Guardian::lock_is_gone() const { send_order(socket_, {.kind = Order::Kind::lock_is_gone}); }

void Guardian::forward(int signal) const { send_order(socket_, {.kind = Order::Kind::forward, .signal = signal}); }

void Guardian::go_on() const { send_order(socket_, {.kind = Order::Kind::go_on}); }

std::optional<Report> Guardian::receive() const {
  Report report{};
  ssize_t length = 0;
  do {
    length = recv(socket_, &report, sizeof report, 0);
    // Reset: it ended without having read everything. What it said before that is still there.
  } while (length < 0 && (errno == EINTR || errno == ECONNRESET));
  if (length != static_cast<ssize_t>(sizeof report)) return std::nullopt;
  return report;
}

}  // namespace syncguard::command
