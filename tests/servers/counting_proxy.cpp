#include "servers/counting_proxy.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <vector>

namespace syncguard::testing {

CountingProxy::CountingProxy(int server_port) : server_port_(server_port) {
  listener_.listen();
  thread_ = std::thread([this] { serve(); });
}

CountingProxy::~CountingProxy() {
  ending_ = true;
  thread_.join();
}

void CountingProxy::serve() {
  std::vector<std::thread> relays;
  while (!ending_) {
    pollfd waiting{.fd = listener_.descriptor(), .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, 10) > 0)
      relays.emplace_back([this, client = accept(listener_.descriptor(), nullptr, nullptr)] { relay(client); });
  }
  for (auto& relay : relays) relay.join();
}

void CountingProxy::relay(int client) {
  const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto address = loopback(server_port_);
  bool open = connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  bool server_spoke_last = true;
  std::array<char, 65536> buffer{};
  while (open && !ending_) {
    std::array<pollfd, 2> ends{pollfd{.fd = client, .events = POLLIN, .revents = 0},
                               pollfd{.fd = server, .events = POLLIN, .revents = 0}};
    if (poll(ends.data(), ends.size(), 10) <= 0) continue;
    for (const bool from_client : {true, false}) {
      if (ends[from_client ? 0 : 1].revents == 0) continue;
      const auto size = recv(from_client ? client : server, buffer.data(), buffer.size(), 0);
      open = size > 0 &&
             send(from_client ? server : client, buffer.data(), static_cast<std::size_t>(size), MSG_NOSIGNAL) == size;
      if (!open) break;
      if (from_client && server_spoke_last) ++round_trips_;
      server_spoke_last = !from_client;
    }
  }
  close(client);
  close(server);
}

}  // namespace syncguard::testing
