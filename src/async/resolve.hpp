// Resolves host names within the caller's limits.
#pragma once

#include <syncguard/call_limits.hpp>

#include <asio/awaitable.hpp>
#include <asio/ip/tcp.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace syncguard::async {

// Throws LockError: service_unavailable if the name has no address, network_timeout, aborted. The system's resolver
// cannot be interrupted. A thread that hangs in it is detached.
asio::awaitable<std::vector<asio::ip::tcp::endpoint>> resolve(std::string host, std::uint16_t port, CallLimits limits);

}  // namespace syncguard::async
