/// \file
/// Locks on Redis 6.2 and newer, shared with processes that use SyncGuard in any language.
#pragma once

#include <syncguard/backend_fwd.hpp>
#include <syncguard/error.hpp>
#include <syncguard/export.hpp>
#include <syncguard/fence.hpp>
#include <syncguard/log.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace syncguard {
inline namespace v0_1 {

/// Certificates and host names are verified unless verify is false.
struct RedisTls {
  bool verify = true;
  /// Trusted certificates, in PEM; empty: those that the system trusts.
  std::filesystem::path ca_file{};
  /// The client's certificate and its key, in PEM, if the server requires one. Both or neither.
  std::filesystem::path certificate_file{};
  std::filesystem::path key_file{};
  /// The expected name in the server's certificate, also sent as SNI; empty: the host.
  std::string server_name{};
};

struct RedisAddress {
  std::string host = "127.0.0.1";
  std::uint16_t port = 6379;
};

/// Redis Sentinel: the addresses of RedisOptions are those of Sentinels, which name the server to connect to.
struct RedisSentinel {
  /// The name by which the Sentinels know the master.
  std::string master{};
  /// The credentials for the Sentinels. Those of RedisOptions are for the master.
  std::string username{};
  std::string password{};
  /// Timeout for the reply of one Sentinel, including connecting. Then the next one is asked.
  std::chrono::milliseconds timeout{500};
};

struct RedisOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 6379;
  /// Further addresses, tried in turn if a server cannot be used. With several addresses, or with Sentinel, a read-only
  /// replica is not used, unless it is a node of a cluster.
  std::vector<RedisAddress> more_addresses{};
  std::optional<RedisSentinel> sentinel{};
  /// Replaces all addresses.
  std::filesystem::path unix_socket{};
  std::optional<RedisTls> tls{};

  /// The ACL user; empty: the default user.
  std::string username{};
  std::string password{};
  /// For passwords that expire (tokens of a cloud provider): called for each new connection, instead of using password.
  /// Runs on a thread of the library, where it may block for up to 30 s. If it throws, that connection attempt fails
  /// with LockError(service_unavailable). By URL: password_command, which is run by `/bin/sh -c` and prints the
  /// password.
  std::function<std::string()> password_callback{};
  int database = 0;
  /// The prefix of all names in the store. On a Redis Cluster it must contain a hash tag, as in "{syncguard}".
  std::string prefix = "syncguard";
  /// Shown by CLIENT LIST.
  std::string client_name = "syncguard";

  /// Timeout of one attempt to connect to one server.
  std::chrono::milliseconds connect_timeout{2000};
  /// Timeout of one operation, including connecting, unless the client's options set another.
  std::chrono::milliseconds operation_timeout{2000};
  /// How long a connection may be idle before TCP keep-alive probes the server.
  std::chrono::seconds keep_alive{30};
  /// How long the server may leave a request unanswered before its connection is closed and replaced.
  std::chrono::milliseconds silence_timeout{10'000};
  /// One connection carries thousands of concurrent operations; more help only if one core cannot saturate the server.
  std::size_t connections = 1;
  /// The maximum number of pending operations per connection; further ones throw LockError(rate_limited).
  std::size_t queue = 16384;
  FenceSource fences = FenceSource::clock;
  /// How many replicas must have a grant or an extension before it counts, from 0 to 16. If fewer have it in time, the
  /// call throws LockError(service_unavailable), in doubt: the lock is released, and an extended lease keeps its
  /// earlier deadline. A failover then loses fewer locks, but it can still lose some. Needs one more connection, and
  /// the permission to run WAIT.
  std::size_t min_replicas = 0;
  /// How long these replicas may take. At most operation_timeout, and shorter than silence_timeout.
  std::chrono::milliseconds replica_timeout{500};
  /// Lets is_locked remove locks that expired more than two seconds ago, at most once a second. Redis removes every
  /// lock that was written with an expiry by itself.
  bool cleanup_in_is_locked = false;
};

/// By URL: "redis://user:password@host:port,host:port/database", "redis+sentinel://user:password@host:port,.../master/
/// database", "rediss://..." and "rediss+sentinel://..." with TLS, "redis+unix:PATH". Options: prefix, database,
/// password_command, client_name, connect_timeout, operation_timeout, keep_alive, silence_timeout, connections, queue,
/// fences (clock, counter), min_replicas, replica_timeout, cleanup_in_is_locked, with Sentinel sentinel_username,
/// sentinel_password and sentinel_timeout, and with TLS verify, ca_file, certificate_file, key_file, server_name.
///
/// Connects on the first operation, and reconnects on the next one after a connection was lost. An open connection is
/// always being read, so the caller's executor has work until the client is closed. The server's clock decides about
/// expiry. Fence counters are as durable as the server's persistence (for full durability set appendonly yes and
/// appendfsync always); with FenceSource::clock, fences grow even if counters were lost. Throws
/// LockError(invalid_argument) for invalid options.
SYNCGUARD_EXPORT std::unique_ptr<Backend> make_redis_backend(RedisOptions options, Log log = {});

}  // namespace v0_1
}  // namespace syncguard
