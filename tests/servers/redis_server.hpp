// A real Redis, private to a test.
#pragma once

#include "servers/child_process.hpp"
#include "temporary_folder.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace syncguard::testing {

class RedisServer {
 public:
  struct Options {
    bool tls = false;
    // Only with TLS.
    bool wants_client_certificates = false;
    // Everything is on the disk before it is answered, and survives a kill.
    bool durable = false;
    bool cluster = false;
    // More lines of its configuration.
    std::vector<std::string> configuration{};
  };
  // The user that tests of locks sign in as. It may do what docs/redis.md says that locks need, and nothing else.
  static constexpr const char* user = "locker";
  static constexpr const char* password = "p@ss:w/rd?";

  RedisServer() : RedisServer(Options{}) {}
  explicit RedisServer(Options options);
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;
  ~RedisServer();

  [[nodiscard]] int port() const noexcept { return port_; }
  [[nodiscard]] std::filesystem::path unix_socket() const { return folder_.path() / "redis.sock"; }
  // What openssl made: ca.crt, server.*, client.*
  [[nodiscard]] std::filesystem::path file(const std::string& name) const { return folder_.path() / name; }
  // Signed in as the user above; by TLS if that is on. Options as in "&prefix=x".
  [[nodiscard]] std::string url(const std::string& more_options = "") const;
  [[nodiscard]] std::string unix_url() const;
  // By TCP, as the user who may do everything. Options as in "?prefix=x".
  [[nodiscard]] std::string plain_url(const std::string& options = "") const;

  // As kill -9, and a new start on the same data and port.
  void kill();
  void start();
  void start_without_waiting();
  // It is there, and says nothing.
  void pause() const { process_->pause(); }
  void resume() const { process_->resume(); }

  // A command from outside, by nothing but hiredis; what it answers as text. Throws for an error of the server's.
  std::string command(const std::vector<std::string>& words);
  // The same, for errors: their text.
  std::string error_of_command(const std::vector<std::string>& words);
  // The ids, with a space behind each, of the connections of clients with the name that url() gives them.
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
