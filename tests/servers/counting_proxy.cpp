#include "servers/counting_proxy.hpp"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace syncguard::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How often a thread checks whether the proxy is being destroyed or stalled.
constexpr milliseconds check_interval{10};

// Bytes in transit in one direction, and when they arrive.
struct Direction {
  int from;
  int to;
  std::deque<std::pair<steady_clock::time_point, std::string>> under_way{};

  // Returns false if the connection was closed.
  bool receive(steady_clock::time_point arrival) {
    std::array<char, 65536> buffer{};
    const auto size = recv(from, buffer.data(), buffer.size(), 0);
    if (size > 0) under_way.emplace_back(arrival, std::string(buffer.data(), static_cast<std::size_t>(size)));
    return size > 0;
  }
  bool deliver(steady_clock::time_point now) {
    for (; !under_way.empty() && under_way.front().first <= now; under_way.pop_front()) {
      const auto& bytes = under_way.front().second;
      if (send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size())) return false;
    }
    return true;
  }
  [[nodiscard]] milliseconds next_delivery(steady_clock::time_point now) const {
    if (under_way.empty()) return check_interval;
    return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(under_way.front().first - now));
  }
};

}  // namespace

CountingProxy::CountingProxy(int server_port, milliseconds delay) : server_port_(server_port), delay_(delay) {
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
    if (poll(&waiting, 1, static_cast<int>(check_interval.count())) <= 0) continue;
    ++connections_;
    relays.emplace_back([this, client = accept(listener_.descriptor(), nullptr, nullptr)] { relay(client); });
  }
  for (auto& relay : relays) relay.join();
}

void CountingProxy::relay(int client) {
  const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto address = loopback(server_port_);
  bool open = connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  const int on = 1;
  for (const int end : {client, server}) setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  bool server_spoke_last = true;
  std::array<Direction, 2> directions{Direction{client, server}, Direction{server, client}};
  while (open && !ending_) {
    if (stalled_) {
      std::this_thread::sleep_for(check_interval);
      continue;
    }
    const auto before = steady_clock::now();
    const auto timeout =
        std::min({check_interval, directions[0].next_delivery(before), directions[1].next_delivery(before)});
    std::array<pollfd, 2> ends{pollfd{.fd = client, .events = POLLIN, .revents = 0},
                               pollfd{.fd = server, .events = POLLIN, .revents = 0}};
    if (poll(ends.data(), ends.size(), static_cast<int>(timeout.count())) < 0) continue;
    for (const bool from_client : {true, false}) {
      auto& direction = directions[from_client ? 0 : 1];
      if (ends[from_client ? 0 : 1].revents != 0) {
        open = direction.receive(steady_clock::now() + delay_);
        if (from_client && server_spoke_last) ++round_trips_;
        server_spoke_last = !from_client;
      }
      open = open && (stalled_ || direction.deliver(steady_clock::now()));
      if (!open) break;
    }
  }
  close(client);
  close(server);
}

}  // namespace syncguard::testing
