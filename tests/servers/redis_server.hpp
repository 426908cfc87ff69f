// A Redis server for one test.
#pragma once

#include "servers/child_process.hpp"
#include "support/temporary_folder.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace syncguard::testing {

class RedisServer {
 public:
  struct Options {
    bool tls = false;
    // Only together with tls.
    bool wants_client_certificates = false;
    // The folder of make_certificates() that several servers share. By default, each has an authority of its own.
    std::filesystem::path certificates{};
    // Writes are on disk before the server replies, and survive a kill.
    bool durable = false;
    bool cluster = false;
    // A Sentinel instead of a server. The configuration must say what it monitors.
    bool sentinel = false;
    // More lines for redis.conf.
    std::vector<std::string> configuration{};
  };
  // The user of most tests. It has only the permissions that docs/redis.md lists.
  static constexpr const char* user = "locker";
  static constexpr const char* password = "p@ss:w/rd?";

  RedisServer() : RedisServer(Options{}) {}
  explicit RedisServer(Options options);
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;
  ~RedisServer();

  [[nodiscard]] int port() const noexcept { return port_; }
  [[nodiscard]] std::filesystem::path unix_socket() const { return folder_.path() / "redis.sock"; }
  // A file in the server's folder, such as a certificate: ca.crt, server.*, client.*
  [[nodiscard]] std::filesystem::path file(const std::string& name) const { return folder_.path() / name; }
  // As the user above, with TLS if it is on. Example of options: "&prefix=x".
  [[nodiscard]] std::string url(const std::string& more_options = "") const;
  // The same for another port, such as that of a proxy.
  [[nodiscard]] std::string url_at(int port, const std::string& more_options = "") const;
  [[nodiscard]] std::string unix_url() const;
  // As the default user, which may do everything, by TCP. Example of options: "?prefix=x".
  [[nodiscard]] std::string plain_url(const std::string& options = "") const;

  // Kills the server with SIGKILL. start() uses the same data and port again.
  void kill();
  void start();
  void start_without_waiting();
  // A paused server accepts connections, but does not reply.
  void pause() const { process_->pause(); }
  void resume() const { process_->resume(); }

  // Sends a command with hiredis, without the backend, and returns the reply as text. Throws on error replies.
  std::string command(const std::vector<std::string>& words);
  // Sends a command that must fail, and returns the text of the error reply.
  std::string error_of_command(const std::vector<std::string>& words);
  // The ids of the connections of clients that use url(), with a space after each.
  std::string connections();

 private:
  [[nodiscard]] bool is_ready();
  std::string run(const std::vector<std::string>& words, bool& is_error);

  const Options options_;
  const TemporaryFolder folder_;
  int port_ = 0;
  std::unique_ptr<ChildProcess> process_;
};

}  // namespace syncguard::testing
