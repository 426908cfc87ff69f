#include "async/resolve.hpp"

#include "async/run_on_thread.hpp"

#include <asio/ip/address.hpp>

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <functional>
#include <memory>
#include <utility>

namespace syncguard::async {
namespace {

using asio::ip::tcp;

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

std::vector<tcp::endpoint> look_up(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(error == 0 ? found : nullptr, freeaddrinfo);
  auto endpoints = endpoints_of(owned.get());
  if (endpoints.empty()) {
    throw LockError(ErrorCode::service_unavailable,
                    std::string("cannot resolve the server's host name: ") + gai_strerror(error));
  }
  return endpoints;
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
  std::function<std::vector<tcp::endpoint>()> look = [host, port] { return look_up(host, port); };
  co_return co_await async::run_on_thread("syncguard-dns", std::move(look), limits,
                                          "timed out resolving the server's host name");
}

}  // namespace syncguard::async
