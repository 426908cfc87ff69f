// The web server of `serve`: a page that shows the locks of a store, and the data for the page.
#pragma once

#include "command/access_rules.hpp"
#include "command/observer.hpp"

#include <syncguard/syncguard.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace syncguard::command {

struct HttpOptions {
  ListenAddress listen{.host = "127.0.0.1", .port = 9465};
  // Names in Host headers to accept besides IP addresses and localhost.
  std::vector<std::string> host_names{};
  // Without a token, every client that can connect may read. Breaking locks always needs one.
  std::optional<BearerToken> token{};
  // PEM; both empty: plain HTTP.
  std::string certificate{};
  std::string private_key{};
};

// Serves from construction to destruction. Every resource that a client can use is limited: connections, the size and
// number of headers, the size of bodies, the time of a request, requests per second, event streams.
//
//   GET  /            the page, with /page.css, /page.js and /icon.svg
//   GET  /api/locks   a page of locks: ?prefix=&cursor=&limit=
//   GET  /api/events  the state, then each change, as server-sent events
//   GET  /metrics     for Prometheus
//   GET  /healthz     200 if the store can be read, otherwise 503
//   POST /api/break   {"key":…,"fence":…}; only with ObserverOptions::can_break
class HttpServer {
 public:
  // log receives messages about broken connections and the like. Throws LockError if the server cannot start.
  HttpServer(Locks locks, ObserverOptions observing, HttpOptions options, std::function<void(const std::string&)> log);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();

  // Where the page is, with the real port if the given one was 0.
  [[nodiscard]] std::string url() const;

 private:
  class Daemon;
  std::unique_ptr<Daemon> daemon_;
};

}  // namespace syncguard::command
