// The system's random source.
#pragma once

#include <syncguard/error.hpp>

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <system_error>

namespace syncguard::core {

// Not a generator with a state: after a fork, sibling processes would draw the same bytes.
template <std::size_t size>
std::array<unsigned char, size> random_bytes() {
  // For up to 256 bytes, getrandom never returns fewer bytes than requested. Before the pool is initialized, a signal
  // may interrupt it.
  static_assert(size <= 256);
  std::array<unsigned char, size> bytes{};
  ssize_t got = 0;
  do {
    got = getrandom(bytes.data(), bytes.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(bytes.size())) {
    throw LockError(ErrorCode::internal,
                    "the operating system provided no random bytes: " + std::generic_category().message(errno));
  }
  return bytes;
}

}  // namespace syncguard::core
