#include "backends/redis/stream.hpp"

#include "async/resolve.hpp"
#include "async/scoped_timeout.hpp"
#include "core/openssl.hpp"
#include "os/fork.hpp"

#include <asio/generic/stream_protocol.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/redirect_error.hpp>
#include <asio/ssl/context.hpp>
#include <asio/ssl/error.hpp>
#include <asio/ssl/stream.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/write.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace syncguard::redis {
namespace {

using Socket = asio::generic::stream_protocol::socket;

[[noreturn]] void throw_lost(const asio::error_code& error) {
  throw LockError(ErrorCode::service_unavailable, "the connection to Redis was lost: " + error.message());
}

bool is_about_certificates(const asio::error_code& error) {
  if (error.category() != asio::error::get_ssl_category()) return false;
  switch (ERR_GET_REASON(static_cast<unsigned long>(error.value()))) {
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
      return true;
    default:
      return false;
  }
}

// Whether the server's first bytes were not TLS.
bool is_about_no_tls(const asio::error_code& error) {
  return error.category() == asio::error::get_ssl_category() &&
         ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_WRONG_VERSION_NUMBER;
}

void set_option(Socket& socket, int level, int name, int value) noexcept {
  // Options that the system does not support are not essential.
  (void)setsockopt(socket.native_handle(), level, name, &value, sizeof value);
}

// The kernel detects a dead connection, too: an idle one by keep-alive, one with pending requests by the limit on
// unacknowledged bytes.
void tune(Socket& socket, const Stream::Liveness& liveness) {
  constexpr int probes = 3;
  const int idle = static_cast<int>(liveness.keep_alive.count());
  const auto unacknowledged =
      std::min<std::chrono::milliseconds::rep>(liveness.silence_timeout.count(), std::numeric_limits<int>::max());
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, idle);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, idle / probes));
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, probes);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(unacknowledged));
}

}  // namespace

struct Tls::Context {
  asio::ssl::context ssl{asio::ssl::context::tls_client};
  std::string server_name;
};

Tls::Tls(const RedisTls& options) {
  core::init_openssl();
  // Never destroyed: the last context would unload OpenSSL's configuration, and Asio's own reference to it ends while
  // the process exits, when static objects may still open clients.
  [[maybe_unused]] static const auto& kept = *new asio::ssl::context(asio::ssl::context::tls_client);
  context_ = std::make_unique<Context>();
  const auto use = [](const char* option, auto&& step) {
    asio::error_code error;
    step(error);
    if (!error) return;
    throw LockError(ErrorCode::invalid_argument,
                    std::string("the file that ") + option + " names cannot be used: " + error.message());
  };
  auto& ssl = context_->ssl;
  SSL_CTX_set_min_proto_version(ssl.native_handle(), TLS1_2_VERSION);
  context_->server_name = options.server_name;
  ssl.set_verify_mode(options.verify ? asio::ssl::verify_peer : asio::ssl::verify_none);
  if (options.ca_file.empty()) {
    ssl.set_default_verify_paths();
  } else {
    use("ca_file", [&](asio::error_code& error) { ssl.load_verify_file(options.ca_file.string(), error); });
  }
  if (options.certificate_file.empty() != options.key_file.empty()) {
    throw LockError(ErrorCode::invalid_argument, "certificate_file and key_file must be given together");
  }
  if (!options.certificate_file.empty()) {
    use("certificate_file",
        [&](asio::error_code& error) { ssl.use_certificate_chain_file(options.certificate_file.string(), error); });
    // An encrypted key is rejected instead of prompting for its password on the terminal.
    ssl.set_password_callback([](std::size_t, asio::ssl::context::password_purpose) { return std::string(); });
    use("key_file", [&](asio::error_code& error) {
      ssl.use_private_key_file(options.key_file.string(), asio::ssl::context::pem, error);
    });
  }
}

Tls::~Tls() = default;

struct Stream::Parts {
  Parts(const asio::any_io_executor& strand, const Tls* with_tls) : socket(strand), tls(with_tls) {}

  asio::awaitable<void> connect_tcp(const Address& address, const Liveness& liveness, const CallLimits& limits);
  asio::awaitable<void> connect_to(Socket::endpoint_type endpoint, asio::error_code& error);
  asio::awaitable<void> start_tls(const std::string& host);
  void close() noexcept;

  Socket socket;
  std::optional<os::ForkGuard> fork_guard;
  const Tls* const tls;
  std::optional<asio::ssl::stream<Socket&>> secure;
  bool closed = false;
  std::atomic<Phase> phase = Phase::connecting;
  // send_now runs on any thread. While it runs, the descriptor must not be closed, because its number could be reused.
  std::mutex descriptor_mutex;
  bool can_send_now = false;
};

void Stream::Parts::close() noexcept {
  const std::lock_guard lock(descriptor_mutex);
  can_send_now = false;
  closed = true;
  asio::error_code ignored;
  // shutdown() also works if a forked child still has the socket open.
  socket.shutdown(Socket::shutdown_both, ignored);
  fork_guard.reset();
  socket.close(ignored);
}

asio::awaitable<void> Stream::Parts::connect_to(Socket::endpoint_type endpoint, asio::error_code& error) {
  fork_guard.reset();
  socket.close(error);
  if (closed) {
    error = asio::error::operation_aborted;
    co_return;
  }
  // With Asio's own open(), programs that the application starts would inherit the socket.
  const int descriptor = ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) {
    error.assign(errno, asio::error::get_system_category());
    co_return;
  }
  fork_guard.emplace(descriptor);
  socket.assign(endpoint.protocol(), descriptor, error);
  if (error) {
    fork_guard.reset();
    ::close(descriptor);
    co_return;
  }
  co_await socket.async_connect(endpoint, asio::redirect_error(asio::use_awaitable, error));
}

asio::awaitable<void> Stream::Parts::connect_tcp(const Address& address, const Liveness& liveness,
                                                 const CallLimits& limits) {
  const auto endpoints = co_await async::resolve(address.host, address.port, limits);
  asio::error_code error;
  for (std::size_t i = 0; i < endpoints.size() && !closed; ++i) {
    // Each address gets its share of the time, so that one that drops packets leaves time for the next.
    const auto now = std::chrono::steady_clock::now();
    const auto share = (limits.deadline - now) / static_cast<std::ptrdiff_t>(endpoints.size() - i);
    {
      const async::ScopedTimeout scoped_timeout(socket.get_executor(), now + share, [this] {
        asio::error_code ignored;
        socket.cancel(ignored);
      });
      co_await connect_to(endpoints[i], error);
    }
    if (!error) {
      tune(socket, liveness);
      co_return;
    }
  }
  throw LockError(ErrorCode::service_unavailable, "cannot connect to Redis: " + error.message());
}

asio::awaitable<void> Stream::Parts::start_tls(const std::string& host) {
  auto& context = tls->context();
  secure.emplace(socket, context.ssl);
  auto* ssl = secure->native_handle();
  std::string name = context.server_name.empty() ? host : context.server_name;
  asio::error_code no_address;
  const auto address = asio::ip::make_address(name, no_address);
  // SSL_ctrl is called as the macro SSL_set_tlsext_host_name does, but without a C-style cast.
  const bool named = no_address
                         ? SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, name.data()) == 1 &&
                               SSL_set1_host(ssl, name.c_str()) == 1
                         : X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), address.to_string().c_str()) == 1;
  if (!named) throw LockError(ErrorCode::invalid_argument, "the server name is not valid for TLS");
  asio::error_code error;
  co_await secure->async_handshake(asio::ssl::stream_base::client, asio::redirect_error(asio::use_awaitable, error));
  if (!error) co_return;
  if (is_about_certificates(error)) {
    const long verdict = SSL_get_verify_result(ssl);
    throw LockError(ErrorCode::auth_failed,
                    std::string("TLS with Redis failed: ") +
                        (verdict == X509_V_OK ? error.message() : X509_verify_cert_error_string(verdict)));
  }
  if (is_about_no_tls(error)) {
    throw LockError(
        ErrorCode::invalid_argument,
        "Redis does not use TLS on this port: write redis:// instead of rediss://, or connect to its TLS port");
  }
  throw LockError(ErrorCode::service_unavailable, "TLS with Redis failed: " + error.message());
}

Stream::Stream(const asio::any_io_executor& strand, const Tls* tls) : parts_(std::make_unique<Parts>(strand, tls)) {}
Stream::~Stream() = default;

asio::awaitable<void> Stream::connect(const Address& address, Liveness liveness, CallLimits limits) {
  if (address.unix_socket.empty()) {
    co_await parts_->connect_tcp(address, liveness, limits);
  } else {
    asio::error_code error;
    // Asio throws if the path does not fit into sockaddr_un.
    constexpr std::size_t max_path_length = 107;
    if (address.unix_socket.native().size() > max_path_length) {
      throw LockError(ErrorCode::invalid_argument, "the path of the Unix socket is longer than 107 bytes");
    }
    co_await parts_->connect_to(asio::local::stream_protocol::endpoint(address.unix_socket.string()), error);
    if (error) throw LockError(ErrorCode::service_unavailable, "cannot connect to Redis: " + error.message());
  }
  if (parts_->tls != nullptr) {
    parts_->phase = Phase::starting_tls;
    co_await parts_->start_tls(address.host);
  }
  parts_->phase = Phase::ready;
  asio::error_code error;
  parts_->socket.native_non_blocking(true, error);
  const std::lock_guard lock(parts_->descriptor_mutex);
  parts_->can_send_now = !parts_->closed && parts_->tls == nullptr;
}

asio::awaitable<std::size_t> Stream::read_some(asio::mutable_buffer buffer) {
  asio::error_code error;
  auto token = asio::redirect_error(asio::use_awaitable, error);
  std::size_t size = 0;
  if (parts_->secure) {
    size = co_await parts_->secure->async_read_some(buffer, token);
  } else {
    size = co_await parts_->socket.async_read_some(buffer, token);
  }
  if (is_about_certificates(error)) {
    // With TLS 1.3, a server rejects a client certificate only after the handshake.
    throw LockError(ErrorCode::auth_failed, "TLS with Redis failed: " + error.message());
  }
  if (error) throw_lost(error);
  co_return size;
}

asio::awaitable<void> Stream::write(asio::const_buffer bytes) {
  asio::error_code error;
  auto token = asio::redirect_error(asio::use_awaitable, error);
  if (parts_->secure) {
    co_await asio::async_write(*parts_->secure, bytes, token);
  } else {
    co_await asio::async_write(parts_->socket, bytes, token);
  }
  if (error) throw_lost(error);
}

std::size_t Stream::send_now(std::string_view bytes) noexcept {
  const std::lock_guard lock(parts_->descriptor_mutex);
  if (!parts_->can_send_now) return 0;
  const auto sent = ::send(parts_->socket.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent > 0 ? static_cast<std::size_t>(sent) : 0;
}

Stream::Phase Stream::phase() const noexcept { return parts_->phase; }

void Stream::close() noexcept { parts_->close(); }

}  // namespace syncguard::redis
