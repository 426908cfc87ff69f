// The TCP connections of this process.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace syncguard::testing {

struct TcpConnection {
  bool keep_alive;
  // How long it may be idle before the system checks it, and how long sent bytes may be unacknowledged.
  std::chrono::seconds idle;
  std::chrono::milliseconds user_timeout;
};

// The IPv4 connections to this port.
inline std::vector<TcpConnection> tcp_connections_to(int port) {
  std::vector<TcpConnection> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::stoi(entry.path().filename().string());
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    if (peer.sin_family != AF_INET || ntohs(peer.sin_port) != port) continue;
    const auto option = [descriptor](int level, int name) {
      int value = 0;
      socklen_t length = sizeof value;
      return getsockopt(descriptor, level, name, &value, &length) == 0 ? value : -1;
    };
    found.push_back({.keep_alive = option(SOL_SOCKET, SO_KEEPALIVE) == 1,
                     .idle = std::chrono::seconds(option(IPPROTO_TCP, TCP_KEEPIDLE)),
                     .user_timeout = std::chrono::milliseconds(option(IPPROTO_TCP, TCP_USER_TIMEOUT))});
  }
  return found;
}

}  // namespace syncguard::testing
