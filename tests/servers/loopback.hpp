// TCP on the loopback interface.
#pragma once

#include <netinet/in.h>

namespace syncguard::testing {

sockaddr_in loopback(int port);

// A socket bound to a free port. Connections to it are refused until listen() is called. Throws std::runtime_error if
// no port is free.
class LoopbackSocket {
 public:
  LoopbackSocket();
  LoopbackSocket(const LoopbackSocket&) = delete;
  LoopbackSocket& operator=(const LoopbackSocket&) = delete;
  ~LoopbackSocket();

  // From now on, clients can connect.
  void listen() const;

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] int port() const noexcept { return port_; }

 private:
  int descriptor_;
  int port_ = 0;
};

}  // namespace syncguard::testing
