// Locks on Redis 6.2 and newer, shared with every process that uses SyncGuard, whatever its language.
#pragma once

#include <syncguard/backend.hpp>
#include <syncguard/export.hpp>
#include <syncguard/log.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace syncguard {

// Certificates and host names are verified unless verify says otherwise.
struct RedisTls {
  bool verify = true;
  // Whom to trust, in PEM; empty: whom the system trusts.
  std::filesystem::path ca_file{};
  // The client's own certificate and its key, in PEM, where the server asks for one. Both or neither.
  std::filesystem::path certificate_file{};
  std::filesystem::path key_file{};
  // The name that the server's certificate must carry, also sent as SNI; empty: the host.
  std::string server_name{};
};

struct RedisOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 6379;
  // In place of host and port.
  std::filesystem::path unix_socket{};
  std::optional<RedisTls> tls{};

  // The user of an access control list; empty: the default user.
  std::string username{};
  std::string password{};
  int database = 0;
  // What all names in the store begin with. On a Redis Cluster it must contain a hash tag, as in "{syncguard}".
  std::string prefix = "syncguard";
  // As CLIENT LIST shows it.
  std::string client_name = "syncguard";

  // Of one attempt to connect.
  std::chrono::milliseconds connect_timeout{2000};
  // Of one operation, connecting included, unless the client's options say otherwise.
  std::chrono::milliseconds operation_timeout{2000};
  // How long a connection may be idle before the system checks whether the other side is still there.
  std::chrono::seconds keep_alive{30};
  // One carries thousands of operations at once; more help only where one core cannot feed the server.
  std::size_t connections = 1;
  // How many operations may be under way on one connection before more are refused with rate_limited.
  std::size_t queue = 16384;
  // Lets is_locked remove locks that expired more than two seconds ago, at most once a second. Redis does that by
  // itself for every lock that was written with its expiry.
  bool cleanup_in_is_locked = false;
};

// By URL: "redis://user:password@host:port/database", "rediss://..." with TLS, "redis+unix:PATH". Options: prefix,
// database, client_name, connect_timeout, operation_timeout, keep_alive, connections, queue, cleanup_in_is_locked, and
// with TLS verify, ca_file, certificate_file, key_file, server_name.
//
// Connects on the first operation, and again on the next one after a connection was lost. An open connection is read
// from, so that an executor of the caller's has work until the client is closed. The server's clock decides about
// expiry. Fences are as durable as the server's persistence: appendonly yes, appendfsync always for all of it. Throws
// LockError(invalid_argument) for options that make no sense.
SYNCGUARD_EXPORT std::unique_ptr<Backend> make_redis_backend(RedisOptions options, Log log = {});

}  // namespace syncguard
