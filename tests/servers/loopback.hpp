// TCP within this machine.
#pragma once

#include <netinet/in.h>

namespace syncguard::testing {

sockaddr_in loopback(int port);

// A socket on a port of the loopback interface that nobody else has. Throws std::runtime_error if there is none.
class LoopbackSocket {
 public:
  LoopbackSocket();
  LoopbackSocket(const LoopbackSocket&) = delete;
  LoopbackSocket& operator=(const LoopbackSocket&) = delete;
  ~LoopbackSocket();

  // From now on, others can connect.
  void listen() const;

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] int port() const noexcept { return port_; }

 private:
  int descriptor_;
  int port_ = 0;
};

}  // namespace syncguard::testing
