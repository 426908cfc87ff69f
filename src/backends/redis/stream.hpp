// Bytes to and from a Redis server: over TCP, a Unix socket, or TLS.
#pragma once

#include <syncguard/backend.hpp>
#include <syncguard/redis.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <asio/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace syncguard::redis {

struct Address {
  std::string host;
  std::uint16_t port = 0;
  // In place of both.
  std::filesystem::path unix_socket{};
};

// How connections of one client verify and identify themselves. Read once: files that are missing or broken are
// found at the start.
class Tls {
 public:
  // Throws LockError(invalid_argument) naming the option whose file cannot be used.
  explicit Tls(const RedisTls& options);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  struct Context;
  [[nodiscard]] Context& context() const noexcept { return *context_; }

 private:
  std::unique_ptr<Context> context_;
};

// One socket. Everything but send_now and close is for coroutines of one strand; one read and one write may be under
// way at a time.
class Stream {
 public:
  // tls may be null; it must outlive the stream.
  Stream(const asio::any_io_executor& strand, const Tls* tls);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Throws LockError. Ends by the deadline and when a stop is requested.
  asio::awaitable<void> connect(const Address& address, std::chrono::seconds keep_alive, CallLimits limits);

  // Both throw LockError(service_unavailable) when the connection is gone.
  asio::awaitable<std::size_t> read_some(asio::mutable_buffer buffer);
  asio::awaitable<void> write(asio::const_buffer bytes);

  // Writes what the socket takes at once, on any thread, and says how much that was. Nothing where only write will do:
  // with TLS, and on an error, which write will find as well.
  std::size_t send_now(std::string_view bytes) noexcept;

  // On the strand. Makes everything under way fail.
  void close() noexcept;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace syncguard::redis
