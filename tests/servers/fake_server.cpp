#include "servers/fake_server.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace syncguard::testing {

FakeServer::FakeServer(Options options) : options_(std::move(options)) {
  listener_.listen();
  thread_ = std::thread([this] { serve(); });
}

FakeServer::~FakeServer() {
  ending_ = true;
  thread_.join();
}

void FakeServer::serve() const {
  while (!ending_) {
    pollfd waiting{.fd = listener_.descriptor(), .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, 10) <= 0) continue;
    const int connection = accept(listener_.descriptor(), nullptr, nullptr);
    serve(connection);
    close(connection);
  }
}

void FakeServer::serve(int connection) const {
  bool greeted = false;
  std::array<char, 65536> buffer{};
  while (!ending_) {
    pollfd waiting{.fd = connection, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, 10) <= 0) continue;
    const auto size = recv(connection, buffer.data(), buffer.size(), 0);
    if (size <= 0) return;
    if (!options_.completes_handshake) continue;
    const std::string& answer = greeted ? options_.answer : options_.greeting;
    const bool sent = send(connection, answer.data(), answer.size(), MSG_NOSIGNAL) > 0;
    if (greeted && options_.then == Then::repeat_forever) {
      for (bool open = sent; open && !ending_;) {
        pollfd writable{.fd = connection, .events = POLLOUT, .revents = 0};
        if (poll(&writable, 1, 10) <= 0) continue;
        const auto more = send(connection, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        open = more >= 0 || errno == EAGAIN;
      }
      return;
    }
    if (greeted && options_.then == Then::hang_up) return;
    greeted = true;
  }
}

}  // namespace syncguard::testing
