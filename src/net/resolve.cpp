#include "net/resolve.hpp"

#include "async/thread.hpp"
#include "async/wake_up.hpp"

#include <asio/ip/address.hpp>

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <utility>

namespace syncguard::net {
namespace {

using asio::ip::tcp;

// Shared with the thread that resolves, which may come back when nobody waits any more.
struct Lookup {
  const std::shared_ptr<async::WakeUp> ended = std::make_shared<async::WakeUp>();
  std::mutex mutex;
  int error = 0;
  std::vector<tcp::endpoint> endpoints;
};

std::vector<tcp::endpoint> endpoints_of(const addrinfo* found) {
  std::vector<tcp::endpoint> endpoints;
  for (; found != nullptr; found = found->ai_next) {
    tcp::endpoint endpoint;
    if (found->ai_addrlen > endpoint.capacity()) continue;
    std::memcpy(endpoint.data(), found->ai_addr, found->ai_addrlen);
    endpoint.resize(found->ai_addrlen);
    endpoints.push_back(endpoint);
  }
  return endpoints;
}

void look_up(Lookup& lookup, const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  {
    const std::lock_guard lock(lookup.mutex);
    lookup.error = error;
    if (error == 0) lookup.endpoints = endpoints_of(found);
  }
  if (error == 0) freeaddrinfo(found);
  lookup.ended->wake();
}

}  // namespace

asio::awaitable<std::vector<tcp::endpoint>> resolve(std::string host, std::uint16_t port, CallLimits limits) {
  asio::error_code no_address;
  const auto address = asio::ip::make_address(host, no_address);
  std::vector<tcp::endpoint> endpoints;
  if (!no_address) {
    endpoints.emplace_back(address, port);
    co_return endpoints;
  }
  const auto lookup = std::make_shared<Lookup>();
  try {
    async::start_thread("syncguard-dns", [lookup, host, port] { look_up(*lookup, host, port); }).detach();
  } catch (const std::system_error&) {
    throw LockError(ErrorCode::service_unavailable, "no thread could be started to resolve the server's name");
  }
  const auto reason = co_await lookup->ended->wait(limits.deadline, limits.stop);
  async::expect_woken(reason, "the server's name could not be resolved in time");
  const std::lock_guard lock(lookup->mutex);
  if (lookup->error != 0 || lookup->endpoints.empty()) {
    throw LockError(ErrorCode::service_unavailable,
                    std::string("the server's name could not be resolved: ") + gai_strerror(lookup->error));
  }
  co_return std::move(lookup->endpoints);
}

}  // namespace syncguard::net
