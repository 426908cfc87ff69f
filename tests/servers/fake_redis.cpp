#include "servers/fake_redis.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string_view>
#include <utility>

namespace syncguard::testing {

FakeRedis::FakeRedis(Options options) : options_(std::move(options)) {
  listener_.listen();
  thread_ = std::thread([this] { serve(); });
}

FakeRedis::~FakeRedis() {
  ending_ = true;
  thread_.join();
}

void FakeRedis::serve() const {
  while (!ending_) {
    pollfd waiting{.fd = listener_.descriptor(), .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, 10) <= 0) continue;
    const int connection = accept(listener_.descriptor(), nullptr, nullptr);
    serve(connection);
    close(connection);
  }
}

void FakeRedis::serve(int connection) const {
  bool greeted = false;
  std::array<char, 65536> buffer{};
  while (!ending_) {
    pollfd waiting{.fd = connection, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, 10) <= 0) continue;
    const auto size = recv(connection, buffer.data(), buffer.size(), 0);
    if (size <= 0) return;
    if (!options_.shakes_hands) continue;
    // To HELLO, CLIENT SETNAME and INFO.
    constexpr std::string_view greeting = "*0\r\n+OK\r\n$0\r\n\r\n";
    const std::string_view answer = greeted ? std::string_view(options_.answer) : greeting;
    send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
    if (greeted && options_.then == Then::hang_up) return;
    greeted = true;
  }
}

}  // namespace syncguard::testing
