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
  // If set, used instead of host and port.
  std::filesystem::path unix_socket{};

  friend bool operator==(const Address&, const Address&) = default;
};

// The certificates of a client's connections. Reads the files once, so that a missing or broken file is reported when
// the client is opened.
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

// One socket. All functions except send_now and close must be called on one strand. At most one read and one write may
// be pending.
class Stream {
 public:
  // tls may be null; it must outlive the stream.
  Stream(const asio::any_io_executor& strand, const Tls* tls);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // How the operating system detects a dead peer: by probes on an idle connection, and by unacknowledged bytes.
  struct Liveness {
    std::chrono::seconds keep_alive;
    std::chrono::milliseconds silence_timeout;
  };
  // Throws LockError, also at the deadline and when a stop is requested.
  asio::awaitable<void> connect(const Address& address, Liveness liveness, CallLimits limits);
  // The progress of connect(). Can be called on any thread.
  enum class Phase { connecting, starting_tls, ready };
  [[nodiscard]] Phase phase() const noexcept;

  // Both throw LockError(service_unavailable) if the connection is lost.
  asio::awaitable<std::size_t> read_some(asio::mutable_buffer buffer);
  asio::awaitable<void> write(asio::const_buffer bytes);

  // Writes as much as the socket accepts without blocking, on any thread, and returns the number of bytes. Returns zero
  // with TLS, and after an error: use write then, which also reports the error.
  std::size_t send_now(std::string_view bytes) noexcept;

  // Makes all pending operations fail. Must be called on the strand.
  void close() noexcept;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace syncguard::redis
