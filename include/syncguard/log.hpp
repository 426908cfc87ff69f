/// \file
/// The log for warnings to operators.
#pragma once

#include <syncguard/export.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>

namespace syncguard {
inline namespace v0_1 {

namespace detail {
struct LogAccess;
}  // namespace detail

enum class LogLevel { warning, debug };

/// A destination for messages that an operator must see: a fence counter near its limit, clock skew, a server that may
/// evict counters. Messages never contain keys, lock ids or credentials.
///
/// Cheap to copy; copies share the destination and the rate limit. Any thread may call it, and no call waits: messages
/// go through a bounded queue to a dedicated thread, which calls the sink, one message at a time and in order. A sink
/// that blocks or throws cannot delay or fail an operation. If 1,024 messages are queued, further ones are dropped, and
/// a warning that reports their number precedes the next delivered message. Closing a client waits up to half a second
/// for its messages. A running call of the sink then continues, so the objects it uses must outlive it.
class SYNCGUARD_EXPORT Log {
 public:
  using Sink = std::function<void(LogLevel, std::string_view message)>;

  /// Writes to stderr.
  Log();
  /// The same, but up_to decides whether debug messages are written, not the environment.
  explicit Log(LogLevel up_to);
  explicit Log(Sink sink);
  Log(Sink sink, LogLevel up_to);

  /// Delivers message, unless one of the same kind was delivered within the last minute. kind is a short constant such
  /// as "fence-threshold".
  void warn(std::string_view kind, std::string_view message) const noexcept;
  /// Delivers message if the environment variable SYNCGUARD_DEBUG is set (to anything but the empty string or 0), or as
  /// set in the constructor.
  void debug(std::string_view message) const noexcept;
  /// Whether debug() delivers messages.
  [[nodiscard]] bool debugging() const noexcept;

  /// Waits until all earlier messages were delivered. Returns false if that takes longer than limit, or if called by
  /// the sink.
  bool flush(std::chrono::milliseconds limit) const;

 private:
  friend struct detail::LogAccess;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace v0_1
}  // namespace syncguard
