// Finding the addresses of a host without ever waiting for longer than the caller wants to.
#pragma once

#include <syncguard/backend.hpp>

#include <asio/awaitable.hpp>
#include <asio/ip/tcp.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace syncguard::net {

// Throws LockError: service_unavailable where the name has no address, network_timeout, aborted. The system's resolver
// cannot be interrupted: a thread that hangs in it is left behind, and ends by itself.
asio::awaitable<std::vector<asio::ip::tcp::endpoint>> resolve(std::string host, std::uint16_t port, CallLimits limits);

}  // namespace syncguard::net
