#include "servers/redis_server.hpp"

#include "servers/certificates.hpp"

#include <hiredis/hiredis.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace syncguard::testing {
namespace {

std::string text_of(const redisReply& reply) {
  switch (reply.type) {
    case REDIS_REPLY_INTEGER:
      return std::to_string(reply.integer);
    case REDIS_REPLY_NIL:
      return "(nil)";
    case REDIS_REPLY_ARRAY: {
      std::string text;
      for (std::size_t i = 0; i < reply.elements; ++i) text += (i == 0 ? "" : "\n") + text_of(*reply.element[i]);
      return text;
    }
    default:
      return {reply.str, static_cast<std::size_t>(reply.len)};
  }
}

}  // namespace

RedisServer::RedisServer(Options options) : options_(std::move(options)) {
  if (!options_.certificates.empty()) {
    std::filesystem::copy(options_.certificates, folder_.path());
  } else if (options_.tls) {
    make_certificates(folder_.path());
  }
  start_on_free_port([this](int port) {
    port_ = port;
    start();
  });
}

RedisServer::~RedisServer() = default;

void RedisServer::start_without_waiting() {
  {
    std::ofstream file_stream(file("redis.conf"));
    file_stream << "bind 127.0.0.1\nunixsocket " << unix_socket().string() << "\ndir " << folder_.path().string()
                << "\nsave \"\"\nenable-debug-command yes\nlogfile redis.log\n"
                << (options_.tls ? "port 0\ntls-port " : "port ") << port_ << '\n';
    if (options_.tls) {
      file_stream << "tls-cert-file server.crt\ntls-key-file server.key\ntls-ca-cert-file ca.crt\ntls-auth-clients "
                  << (options_.wants_client_certificates ? "yes" : "no") << '\n';
    }
    if (options_.durable) file_stream << "appendonly yes\nappendfsync always\n";
    if (options_.cluster) file_stream << "cluster-enabled yes\n";
    for (const auto& line : options_.configuration) file_stream << line << '\n';
    file_stream << "user default on nopass ~* &* +@all\n";
    // A Sentinel does not know the commands of the other user.
    if (!options_.sentinel) {
      file_stream
          << "user " << user << " on >" << password
          << " ~syncguard:* ~syncguard-queue:* ~syncguard-turn:* ~{syncguard}* &syncguard-wake:* &{syncguard}-wake:*"
             " &__keyspace@* +select +info +client|setname"
             " +eval +evalsha +time +get +mget +set +incr +del +pexpire +pttl"
             " +zadd +zrange +zrem +zremrangebyrank +zcard +scan +publish +subscribe +unsubscribe"
          << (options_.cluster ? " +asking\n" : "\n");
    }
  }
  std::vector<std::string> start_command{"redis-server", file("redis.conf").string()};
  if (options_.sentinel) start_command.emplace_back("--sentinel");
  process_ = std::make_unique<ChildProcess>(start_command, file("output"));
}

void RedisServer::start() {
  start_without_waiting();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!is_ready()) {
    if (!process_->is_running() || std::chrono::steady_clock::now() > end) {
      throw std::runtime_error("redis-server does not start");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

bool RedisServer::is_ready() {
  try {
    return command({"PING"}) == "PONG";
  } catch (const std::runtime_error&) {
    return false;
  }
}

void RedisServer::kill() {
  process_->send(SIGKILL);
  process_->wait();
}

std::string RedisServer::url(const std::string& more_options) const { return url_at(port_, more_options); }

std::string RedisServer::url_at(int port, const std::string& own_options) const {
  // A busy machine may be slow. Tests of this timeout set their own.
  const bool own_timeout = own_options.find("connect_timeout") != std::string::npos;
  const std::string more_options = (own_timeout ? "" : "&connect_timeout=20s") + own_options;
  // The password in its URL-encoded form.
  const std::string credentials = std::string(user) + ":p%40ss%3Aw%2Frd%3F@";
  if (options_.tls) {
    return "rediss://" + credentials + "127.0.0.1:" + std::to_string(port) + "?ca_file=" + file("ca.crt").string() +
           more_options;
  }
  return "redis://" + credentials + "127.0.0.1:" + std::to_string(port) + "?client_name=test" + more_options;
}

std::string RedisServer::unix_url() const {
  return "redis+unix://" + std::string(user) + ":p%40ss%3Aw%2Frd%3F@" + unix_socket().string() +
         "?client_name=test&connect_timeout=20s";
}

std::string RedisServer::plain_url(const std::string& options) const {
  return "redis://127.0.0.1:" + std::to_string(port_) + options;
}

std::string RedisServer::run(const std::vector<std::string>& words, bool& is_error) {
  // The Unix socket works with and without TLS. A new connection for each command, because the server may restart.
  const timeval timeout{.tv_sec = 10, .tv_usec = 0};
  const std::unique_ptr<redisContext, void (*)(redisContext*)> context(
      redisConnectUnixWithTimeout(unix_socket().c_str(), timeout), redisFree);
  if (!context || context->err != 0) throw std::runtime_error("no connection to the test's Redis");
  redisSetTimeout(context.get(), timeout);
  std::vector<const char*> texts;
  std::vector<std::size_t> sizes;
  for (const auto& word : words) {
    texts.push_back(word.data());
    sizes.push_back(word.size());
  }
  const std::unique_ptr<redisReply, void (*)(void*)> reply(
      static_cast<redisReply*>(
          redisCommandArgv(context.get(), static_cast<int>(words.size()), texts.data(), sizes.data())),
      freeReplyObject);
  if (!reply) throw std::runtime_error("the test's Redis does not answer");
  is_error = reply->type == REDIS_REPLY_ERROR;
  return text_of(*reply);
}

std::string RedisServer::command(const std::vector<std::string>& words) {
  bool is_error = false;
  auto text = run(words, is_error);
  if (is_error) throw std::runtime_error(words.front() + ": " + text);
  return text;
}

std::string RedisServer::error_of_command(const std::vector<std::string>& words) {
  bool is_error = false;
  auto text = run(words, is_error);
  if (!is_error) throw std::runtime_error(words.front() + " should have failed");
  return text;
}

std::string RedisServer::connections() {
  const auto clients = command({"CLIENT", "LIST"});
  std::string ids;
  for (auto at = clients.find("name=test"); at != std::string::npos; at = clients.find("name=test", at + 1)) {
    const auto id = clients.rfind("id=", at);
    ids += clients.substr(id, clients.find(' ', id) - id) + ' ';
  }
  return ids;
}

}  // namespace syncguard::testing
