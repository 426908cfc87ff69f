// A server on a Unix socket that sends the input of a fuzzer, and a client that is connected to it.
#pragma once

#include "support/thread_count.hpp"

#include <syncguard/syncguard.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace syncguard::testing {

inline std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const auto end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// Answers each piece that it receives, on any connection, with the next piece of the script, and hangs up when there is
// none.
class ScriptedPeer {
 public:
  explicit ScriptedPeer(const std::filesystem::path& path) : listener_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const auto text = path.string();
    if (text.size() >= sizeof address.sun_path) throw std::runtime_error("the path is too long");
    std::copy(text.begin(), text.end(), address.sun_path);
    if (bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        listen(listener_, SOMAXCONN) != 0) {
      throw std::runtime_error("cannot listen");
    }
    thread_ = std::thread([this] { serve(); });
  }
  ScriptedPeer(const ScriptedPeer&) = delete;
  ScriptedPeer& operator=(const ScriptedPeer&) = delete;
  ~ScriptedPeer() {
    ending_ = true;
    thread_.join();
    close(listener_);
  }

  // The first connection begins with the script, unless it is to be greeted as later ones are.
  enum class First { scripted, greeted };
  void play(std::vector<std::string> script, std::string greeting, First first) {
    const std::lock_guard lock(mutex_);
    pieces_ = std::move(script);
    next_ = 0;
    greeting_ = std::move(greeting);
    is_scripted_ = first == First::scripted;
  }

 private:
  struct Connection {
    int descriptor;
    bool is_greeted;
  };

  void serve() {
    std::vector<Connection> connections;
    while (!ending_) {
      std::vector<pollfd> sources{{.fd = listener_, .events = POLLIN, .revents = 0}};
      for (const auto& connection : connections) {
        sources.push_back({.fd = connection.descriptor, .events = POLLIN, .revents = 0});
      }
      constexpr std::chrono::milliseconds check_interval(10);
      if (poll(sources.data(), sources.size(), static_cast<int>(check_interval.count())) <= 0) continue;
      for (std::size_t i = connections.size(); i-- > 0;) {
        if (sources[i + 1].revents == 0 || answer(connections[i])) continue;
        close(connections[i].descriptor);
        connections.erase(connections.begin() + static_cast<std::ptrdiff_t>(i));
      }
      if (sources[0].revents != 0) {
        const int descriptor = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        const std::lock_guard lock(mutex_);
        if (descriptor >= 0) connections.push_back({descriptor, std::exchange(is_scripted_, false)});
      }
    }
    for (const auto& connection : connections) close(connection.descriptor);
  }

  // False if this connection is over.
  bool answer(Connection& connection) {
    std::array<char, 65536> buffer{};
    if (recv(connection.descriptor, buffer.data(), buffer.size(), 0) <= 0) return false;
    const std::lock_guard lock(mutex_);
    const bool is_greeting = !std::exchange(connection.is_greeted, true);
    if (!is_greeting && next_ == pieces_.size()) return false;
    const std::string& piece = is_greeting ? greeting_ : pieces_[next_++];
    return piece.empty() || send(connection.descriptor, piece.data(), piece.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
  }

  const int listener_;
  std::atomic<bool> ending_{false};
  std::mutex mutex_;
  std::vector<std::string> pieces_;
  std::size_t next_ = 0;
  std::string greeting_;
  bool is_scripted_ = false;
  std::thread thread_;
};

// A client that is closed on its own I/O thread does not wait for that thread. libFuzzer would take what the thread has
// not freed yet for a leak. Threads that connect to a silent server end later.
inline void wait_for_threads(std::size_t count) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (thread_count() > count && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
}

// One operation, chosen by a byte, on a store whose server may answer anything. It ends with a value or a LockError,
// and in time; no lock lasts longer than its caller requested.
inline void run_any_operation(std::uint8_t choice, const std::string& url) {
  using namespace std::chrono_literals;
  constexpr auto ttl = 1000ms;
  const auto check = [&](Lease& lease) {
    if (lease.remaining() > ttl || lease.fence().value() > Fence::max_value) std::abort();
    lease.detach();
  };
  const auto threads = thread_count();
  const auto begin = std::chrono::steady_clock::now();
  try {
    auto locks = open(url, {.dispose_timeout = 0ms});
    enum Operation { is_locked, lookup, try_acquire, acquire, extend, release, setup, diagnose, count };
    switch (static_cast<Operation>(choice % count)) {
      case is_locked:
        (void)locks.is_locked("key");
        break;
      case lookup:
        (void)locks.lookup(Key("key"));
        break;
      case try_acquire:
        if (auto lease = locks.try_acquire("key", {.ttl = ttl})) check(*lease);
        break;
      case acquire: {
        auto lease = locks.acquire("key", {.ttl = ttl, .wait = {.timeout = 5ms}});
        check(lease);
        break;
      }
      case extend:
        (void)locks.extend(LockId::generate(), ttl);
        break;
      case release:
        (void)locks.release(LockId::generate());
        break;
      case setup:
        (void)locks.admin().setup();
        break;
      case diagnose:
        (void)locks.admin().diagnose();
        break;
      case count:
        break;
    }
  } catch (const LockError&) {  // an expected outcome
  }
  if (std::chrono::steady_clock::now() - begin > 10s) std::abort();
  wait_for_threads(threads);
}

}  // namespace syncguard::testing
