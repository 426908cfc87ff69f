#include "servers/loopback.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>

namespace syncguard::testing {

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

LoopbackSocket::LoopbackSocket() : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  auto address = loopback(0);
  socklen_t size = sizeof address;
  if (bind(descriptor_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    close(descriptor_);
    throw std::runtime_error("no free port");
  }
  port_ = ntohs(address.sin_port);
}

LoopbackSocket::~LoopbackSocket() { close(descriptor_); }

void LoopbackSocket::listen() const {
  constexpr int backlog = 16;
  if (::listen(descriptor_, backlog) != 0) throw std::runtime_error("cannot listen on the port");
}

}  // namespace syncguard::testing
