#include "command/http_server.hpp"

#include "command/event_stream.hpp"
#include "command/http_reply.hpp"
#include "command/json.hpp"
#include "command/output.hpp"
#include "command/signals.hpp"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <list>
#include <mutex>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

namespace syncguard::command {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr unsigned max_connections = 128;
constexpr unsigned max_connections_per_address = 96;
constexpr std::size_t max_streams = 64;
// All headers of a request, and the buffers of a connection, must fit into this.
constexpr std::size_t connection_memory = 32U << 10U;
constexpr int max_headers = 64;
constexpr std::size_t max_body = 4096;
// From the connection, or the end of the last request, to the end of the headers of the next one.
constexpr auto time_for_headers = 10s;
// For the rest of a request, and for one block of an event.
constexpr auto time_for_request = 30s;
constexpr double requests_per_second = 100;
constexpr double burst_of_requests = 200;
constexpr double refusals_per_second = 20;
constexpr double burst_of_refusals = 50;
constexpr std::size_t block_size = 16U << 10U;

class Socket {
 public:
  explicit Socket(const ListenAddress& address)
      : descriptor_(socket(address.is_ipv6() ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    const int yes = 1;
    setsockopt(descriptor_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_storage storage{};
    socklen_t size = 0;
    if (address.is_ipv6()) {
      setsockopt(descriptor_, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
      auto* place = reinterpret_cast<sockaddr_in6*>(&storage);
      *place = {};
      place->sin6_family = AF_INET6;
      place->sin6_port = htons(address.port);
      inet_pton(AF_INET6, address.host.c_str(), &place->sin6_addr);
      size = sizeof *place;
    } else {
      auto* place = reinterpret_cast<sockaddr_in*>(&storage);
      *place = {};
      place->sin_family = AF_INET;
      place->sin_port = htons(address.port);
      inet_pton(AF_INET, address.host.c_str(), &place->sin_addr);
      size = sizeof *place;
    }
    constexpr int backlog = 64;
    if (descriptor_ < 0 || bind(descriptor_, reinterpret_cast<sockaddr*>(&storage), size) != 0 ||
        ::listen(descriptor_, backlog) != 0) {
      const int error = errno;
      close();
      throw LockError(ErrorCode::invalid_argument,
                      "cannot listen on " + address.str() + ": " + std::generic_category().message(error) +
                          (error == EADDRINUSE ? "; choose another port with --listen" : ""));
    }
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() { close(); }

  [[nodiscard]] std::uint16_t port() const {
    sockaddr_storage storage{};
    socklen_t size = sizeof storage;
    getsockname(descriptor_, reinterpret_cast<sockaddr*>(&storage), &size);
    return ntohs(storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port
                                               : reinterpret_cast<sockaddr_in*>(&storage)->sin_port);
  }
  // The caller closes the socket.
  int release() { return std::exchange(descriptor_, -1); }

 private:
  void close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }

  int descriptor_;
};

}  // namespace

class HttpServer::Daemon {
 public:
  Daemon(Locks locks, const ObserverOptions& observing, HttpOptions options,
         std::function<void(const std::string&)> log)
      : options_(std::move(options)), can_break_(observing.can_break), log_(std::move(log)) {
    Socket socket(options_.listen);
    options_.listen.port = socket.port();
    observer_.emplace(std::move(locks), observing, [this] { wake_streams(); });
    timer_ = std::jthread([this](const std::stop_token& stop) { keep_time(stop); });
    std::string tls_versions = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    std::vector<MHD_OptionItem> tls;
    if (!options_.certificate.empty()) {
      flags |= MHD_USE_TLS;
      tls.push_back({MHD_OPTION_HTTPS_MEM_CERT, 0, options_.certificate.data()});
      tls.push_back({MHD_OPTION_HTTPS_MEM_KEY, 0, options_.private_key.data()});
      tls.push_back({MHD_OPTION_HTTPS_PRIORITIES, 0, tls_versions.data()});
    }
    tls.push_back({MHD_OPTION_END, 0, nullptr});
    daemon_ = MHD_start_daemon(flags, 0, nullptr, nullptr, &Daemon::handle, this,  //
                               MHD_OPTION_EXTERNAL_LOGGER, &Daemon::log, this,     // first, for errors of others
                               MHD_OPTION_LISTEN_SOCKET, socket.release(),         //
                               MHD_OPTION_CONNECTION_LIMIT, max_connections,       //
                               MHD_OPTION_PER_IP_CONNECTION_LIMIT, max_connections_per_address,                 //
                               MHD_OPTION_CONNECTION_MEMORY_LIMIT, connection_memory,                           //
                               MHD_OPTION_CONNECTION_TIMEOUT, static_cast<unsigned>(time_for_request.count()),  //
                               MHD_OPTION_NOTIFY_CONNECTION, &Daemon::notify_connection, this,                  //
                               MHD_OPTION_NOTIFY_COMPLETED, &Daemon::notify_completed, this,                    //
                               MHD_OPTION_ARRAY, tls.data(), MHD_OPTION_END);
    if (daemon_ == nullptr) {
      throw LockError(ErrorCode::invalid_argument,
                      "cannot start the web server" + (messages_.empty() ? "" : ": " + messages_));
    }
    is_started_ = true;
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  ~Daemon() {
    timer_.request_stop();
    timer_.join();
    // Its tasks resume the requests that wait for them.
    observer_->stop();
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
      resume_streams([](const Request&) { return true; });
    }
    MHD_stop_daemon(daemon_);
  }

  [[nodiscard]] std::string url() const {
    return (options_.certificate.empty() ? "http://" : "https://") + options_.listen.str() + "/";
  }

 private:
  // Guarded by mutex_.
  struct Connection {
    int descriptor = -1;
    // When the connection is closed, unless the client makes progress.
    Clock::time_point deadline;
  };

  struct Request {
    Daemon* daemon = nullptr;
    MHD_Connection* connection = nullptr;
    // The rest is for event streams and POST requests. Guarded by mutex_, except body.
    std::optional<EventStream> stream{};
    // Whether the stream waits for an event.
    bool is_suspended = false;
    std::string body{};
    bool is_waiting = false;
    std::optional<Reply> reply{};
  };

  [[gnu::format(printf, 2, 0)]] static void log(void* self, const char* format, va_list arguments) noexcept {
    char text[512];
    std::vsnprintf(text, sizeof text, format, arguments);
    static_cast<Daemon*>(self)->add_message(text);
  }

  void add_message(std::string text) {
    while (text.ends_with('\n')) text.pop_back();
    if (is_started_) {
      log_("web server: " + text);
    } else {
      messages_ += (messages_.empty() ? "" : "; ") + text;
    }
  }

  static void notify_connection(void* self, MHD_Connection* connection, void** context,
                                MHD_ConnectionNotificationCode code) {
    static_cast<Daemon*>(self)->track(connection, context, code);
  }

  void track(MHD_Connection* connection, void** context, MHD_ConnectionNotificationCode code) noexcept {
    const std::lock_guard lock(mutex_);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
      const auto* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
      connections_.push_back({.descriptor = info->connect_fd, .deadline = Clock::now() + time_for_headers});
      *context = &connections_.back();
    } else {
      // The descriptor is still open, so no other file can have its number.
      const auto* closed = static_cast<Connection*>(*context);
      connections_.remove_if([&](const Connection& other) { return &other == closed; });
    }
  }

  // mutex_ must be locked.
  static void set_deadline(MHD_Connection* connection, Clock::time_point deadline) {
    const auto* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (info != nullptr && info->socket_context != nullptr) {
      static_cast<Connection*>(info->socket_context)->deadline = deadline;
    }
  }

  static void notify_completed(void* self, MHD_Connection* connection, void** context, MHD_RequestTerminationCode) {
    static_cast<Daemon*>(self)->complete(connection, context);
  }

  void complete(MHD_Connection* connection, void** context) {
    const std::lock_guard lock(mutex_);
    set_deadline(connection, Clock::now() + time_for_headers);
    const auto* completed = static_cast<Request*>(*context);
    requests_.remove_if([&](const Request& request) { return &request == completed; });
    *context = nullptr;
  }

  // Called for each step of a request. Nothing may be thrown into libmicrohttpd.
  static MHD_Result handle(void* self, MHD_Connection* connection, const char* path, const char* method, const char*,
                           const char* data, std::size_t* size, void** context) {
    try {
      auto& daemon = *static_cast<Daemon*>(self);
      if (auto* request = static_cast<Request*>(*context)) return daemon.proceed(*request, path, data, size);
      *context = daemon.add_request(connection);
      // A reply at this first step also closes the connection.
      const auto refusal = daemon.refuse(connection, path, method);
      return refusal ? answer(connection, *refusal) : MHD_YES;
    } catch (const std::exception&) {
      return MHD_NO;
    }
  }

  Request* add_request(MHD_Connection* connection) {
    const std::lock_guard lock(mutex_);
    set_deadline(connection, Clock::now() + time_for_request);
    auto& request = requests_.emplace_back();
    request.daemon = this;
    request.connection = connection;
    return &request;
  }

  // Reads the body, then answers.
  MHD_Result proceed(Request& request, std::string_view path, const char* data, std::size_t* size) {
    if (*size > 0) {
      // The rest of a body that is too long is read and dropped, so that the client gets the reply.
      if (request.body.size() <= max_body) request.body.append(data, std::min(*size, max_body + 1));
      *size = 0;
      return MHD_YES;
    }
    auto* connection = request.connection;
    if (request.body.size() > max_body) {
      return answer(connection, text_reply(MHD_HTTP_CONTENT_TOO_LARGE, "the body is too large"));
    }
    if (path == break_path) return proceed_break(request);
    if (is_public(path)) return answer(connection, public_reply(path));
    if (path == "/metrics") {
      return answer(connection, {.type = "text/plain; version=0.0.4; charset=utf-8", .body = observer_->metrics()});
    }
    if (path == events_path) return begin_stream(request);
    return answer(connection, locks_page(connection));
  }

  // What is answered without a token.
  static bool is_public(std::string_view path) { return page_file(path) != nullptr || path == "/healthz"; }

  Reply public_reply(std::string_view path) {
    Reply reply;
    if (const auto* file = page_file(path)) {
      reply = {.type = file->type, .body = std::string(file->content)};
    } else {
      const bool ok = observer_->problem().empty();
      reply = text_reply(ok ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, ok ? "ok" : "the store cannot be read");
    }
    // Clients without the token must not keep the connections that others need.
    if (options_.token) reply.headers.emplace_back("Connection", "close");
    return reply;
  }

  static Reply too_many(const char* message) {
    auto reply = text_reply(MHD_HTTP_TOO_MANY_REQUESTS, message);
    reply.headers = {{"Retry-After", "1"}};
    return reply;
  }

  // The reply to a request that is not answered. Those that are not allowed, and those that need no token although
  // there is one, have limits of their own, so that they take nothing away from others.
  std::optional<Reply> refuse(MHD_Connection* connection, std::string_view path, std::string_view method) {
    auto refusal = refuse_access(connection, path, method);
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    if (!refusal) {
      auto& rate = options_.token && is_public(path) ? public_rate_ : request_rate_;
      return rate.allows(now) ? std::nullopt : std::optional(too_many("too many requests"));
    }
    if (!refusal_rate_.allows(now)) {
      auto reply = too_many(refusal->status == MHD_HTTP_UNAUTHORIZED ? "too many wrong tokens" : "too many requests");
      for (auto& header : refusal->headers) reply.headers.push_back(std::move(header));
      return reply;
    }
    return refusal;
  }

  std::optional<Reply> refuse_access(MHD_Connection* connection, std::string_view path, std::string_view method) {
    if (MHD_get_connection_values(connection, MHD_HEADER_KIND, nullptr, nullptr) > max_headers) {
      return text_reply(MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE, "too many headers");
    }
    const auto host = header_of(connection, "Host");
    if (!is_allowed_host(host, options_.host_names)) {
      return text_reply(MHD_HTTP_MISDIRECTED_REQUEST,
                        "this name is not accepted: use the IP address, or start syncguard serve with --host NAME");
    }
    // Browsers add these. A page of another site may link to this one, but not load anything from it.
    const auto site = header_of(connection, "Sec-Fetch-Site");
    if (!site.empty() && site != "same-origin" && site != "none" &&
        header_of(connection, "Sec-Fetch-Mode") != "navigate") {
      return text_reply(MHD_HTTP_FORBIDDEN, "requests of other sites are not answered");
    }
    const bool is_private = path == "/metrics" || path == events_path || path == "/api/locks" || path == break_path;
    if (!is_public(path) && !is_private) return text_reply(MHD_HTTP_NOT_FOUND, "not found");
    const bool is_break = path == break_path;
    // libmicrohttpd would answer HEAD for a stream with the end of its body.
    const bool allows_head = path != events_path;
    if (is_break ? method != "POST" : method != "GET" && !(method == "HEAD" && allows_head)) {
      auto reply = text_reply(MHD_HTTP_METHOD_NOT_ALLOWED, "method not allowed");
      reply.headers = {{"Allow", is_break ? "POST" : allows_head ? "GET, HEAD" : "GET"}};
      return reply;
    }
    if (is_break && (!can_break_ || !options_.token)) {
      return text_reply(MHD_HTTP_FORBIDDEN, "breaking locks is not allowed: start syncguard serve with --allow-break");
    }
    if (is_private && options_.token && !options_.token->matches(header_of(connection, "Authorization"))) {
      auto reply = text_reply(MHD_HTTP_UNAUTHORIZED, "this needs a token");
      reply.headers = {{"WWW-Authenticate", "Bearer realm=\"syncguard\""}};
      return reply;
    }
    if (is_break && !is_same_origin(header_of(connection, "Origin"), host)) {
      return text_reply(MHD_HTTP_FORBIDDEN, "a lock can be broken only from the page of this server");
    }
    return std::nullopt;
  }

  Reply locks_page(MHD_Connection* connection) {
    const auto argument = [&](std::string_view name) { return value_of(connection, MHD_GET_ARGUMENT_KIND, name); };
    std::size_t limit = 100;
    if (const auto text = argument("limit"); !text.empty()) {
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), limit);
      if (error != std::errc() || end != text.data() + text.size() || limit < 1 || limit > ListOptions::max_limit) {
        return text_reply(MHD_HTTP_BAD_REQUEST, "limit must be a number from 1 to 1000");
      }
    }
    auto page = observer_->locks_page(argument("prefix"), argument("cursor"), limit);
    if (!page) return text_reply(MHD_HTTP_SERVICE_UNAVAILABLE, "the store was not read yet");
    return {.type = "application/json", .body = std::move(*page)};
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Event streams

  MHD_Result begin_stream(Request& request) {
    {
      const std::lock_guard lock(mutex_);
      const auto streams =
          std::ranges::count_if(requests_, [](const Request& other) { return other.stream.has_value(); });
      if (static_cast<std::size_t>(streams) < max_streams) request.stream.emplace(Clock::now());
    }
    if (!request.stream) {
      return answer(request.connection,
                    text_reply(MHD_HTTP_SERVICE_UNAVAILABLE, "too many viewers: close another page, then try again"));
    }
    return answer(
        request.connection, {.type = "text/event-stream", .body = ""},
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, block_size, &Daemon::read_stream, &request, nullptr));
  }

  // Called when libmicrohttpd can send more.
  static ssize_t read_stream(void* context, std::uint64_t, char* buffer, std::size_t size) {
    auto& request = *static_cast<Request*>(context);
    try {
      return request.daemon->continue_stream(request, {buffer, size});
    } catch (const std::exception&) {
      return MHD_CONTENT_READER_END_WITH_ERROR;
    }
  }

  ssize_t continue_stream(Request& request, std::span<char> buffer) {
    // Locked until the connection is suspended, so that no event is missed in between.
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    if (request.stream->is_between_events() && (is_ending_ || request.stream->is_over(now))) {
      return MHD_CONTENT_READER_END_OF_STREAM;
    }
    const auto size = request.stream->read(*observer_, buffer, now);
    if (size == 0) {
      set_deadline(request.connection, Clock::time_point::max());
      request.is_suspended = true;
      MHD_suspend_connection(request.connection);
    } else {
      // The block before was sent: the client makes progress.
      set_deadline(request.connection, now + time_for_request);
    }
    return static_cast<ssize_t>(size);
  }

  // mutex_ must be locked.
  template <typename Predicate>
  void resume_streams(Predicate is_due) {
    for (auto& request : requests_) {
      if (!request.is_suspended || !is_due(std::as_const(request))) continue;
      request.is_suspended = false;
      // libmicrohttpd must notice soon if the client is gone.
      set_deadline(request.connection, Clock::now() + time_for_request);
      MHD_resume_connection(request.connection);
    }
  }

  void wake_streams() {
    const std::lock_guard lock(mutex_);
    resume_streams([](const Request&) { return true; });
  }

  // Closes connections whose time is over, and sends heartbeats, which show that a stream works.
  void keep_time(const std::stop_token& stop) {
    while (!sleep_until_stopped(stop, 1s)) {
      const auto now = Clock::now();
      const std::lock_guard lock(mutex_);
      for (const auto& connection : connections_) {
        if (now >= connection.deadline) shutdown(connection.descriptor, SHUT_RDWR);
      }
      resume_streams([&](const Request& request) { return request.stream->is_due(now); });
    }
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Breaking a lock

  MHD_Result proceed_break(Request& request) {
    std::optional<Reply> reply;
    {
      const std::lock_guard lock(mutex_);
      reply = std::move(request.reply);
      if (!reply && request.is_waiting) return MHD_YES;
    }
    if (!reply) reply = begin_break(request);
    return reply ? answer(request.connection, *reply) : MHD_YES;
  }

  // nullopt if the reply follows.
  std::optional<Reply> begin_break(Request& request) {
    std::optional<BreakRequest> to_break;
    try {
      to_break.emplace(BreakRequest::parse(request.body));
    } catch (const LockError& error) {
      return text_reply(MHD_HTTP_BAD_REQUEST, error.what());
    }
    const std::lock_guard lock(mutex_);
    // The observer runs the task after this returns: until then, mutex_ is locked.
    if (!observer_->post([this, &request, to_break = *to_break](const Locks& locks, const std::stop_token& stop) {
          finish_break(request, break_lock(locks, to_break, stop));
        })) {
      return text_reply(MHD_HTTP_SERVICE_UNAVAILABLE, "too many requests of this kind");
    }
    request.is_waiting = true;
    set_deadline(request.connection, Clock::time_point::max());
    MHD_suspend_connection(request.connection);
    return std::nullopt;
  }

  static Reply break_lock(const Locks& locks, const BreakRequest& request, const std::stop_token& stop) {
    try {
      const bool broken = locks.admin().break_lock(request.key, request.fence, stop);
      return json_reply(MHD_HTTP_OK, {{"ok", broken}});
    } catch (const LockError& error) {
      return text_reply(MHD_HTTP_BAD_GATEWAY, message_with_causes(error));
    } catch (const std::exception& error) {
      return text_reply(MHD_HTTP_INTERNAL_SERVER_ERROR, error.what());
    }
  }

  void finish_break(Request& request, Reply reply) {
    const std::lock_guard lock(mutex_);
    request.reply = std::move(reply);
    request.is_waiting = false;
    set_deadline(request.connection, Clock::now() + time_for_request);
    MHD_resume_connection(request.connection);
  }

  static constexpr std::string_view break_path = "/api/break";
  static constexpr std::string_view events_path = "/api/events";

  HttpOptions options_;
  const bool can_break_;
  const std::function<void(const std::string&)> log_;
  // Messages of libmicrohttpd before it started.
  std::string messages_;
  std::atomic<bool> is_started_ = false;

  // May be locked while libmicrohttpd's functions or the observer's are called, which call back only without a lock of
  // their own.
  std::mutex mutex_;
  std::list<Connection> connections_;
  std::list<Request> requests_;
  RateLimit request_rate_{requests_per_second, burst_of_requests};
  RateLimit public_rate_{requests_per_second, burst_of_requests};
  RateLimit refusal_rate_{refusals_per_second, burst_of_refusals};
  bool is_ending_ = false;

  std::optional<Observer> observer_;
  MHD_Daemon* daemon_ = nullptr;
  std::jthread timer_;
};

HttpServer::HttpServer(Locks locks, ObserverOptions observing, HttpOptions options,
                       std::function<void(const std::string&)> log)
    : daemon_(std::make_unique<Daemon>(std::move(locks), observing, std::move(options), std::move(log))) {}

HttpServer::~HttpServer() = default;

std::string HttpServer::url() const { return daemon_->url(); }

}  // namespace syncguard::command
