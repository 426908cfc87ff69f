// Where warnings for operators go.
#pragma once

#include <syncguard/export.hpp>

#include <functional>
#include <memory>
#include <string_view>

namespace syncguard {

enum class LogLevel { warning, debug };

// A destination for messages that an operator must see: a fence counter near its limit, a clock that is off, a server
// that may evict counters. Messages never contain keys, lock ids or credentials.
//
// Cheap to copy; copies share the destination and the rate limit. Any thread may call it. A sink that throws is
// ignored: a warning must not fail the operation that it is about.
class SYNCGUARD_EXPORT Log {
 public:
  using Sink = std::function<void(LogLevel, std::string_view message)>;

  // Writes to stderr.
  Log();
  // The same, but whether debug messages are written depends on up_to and not on the environment.
  explicit Log(LogLevel up_to);
  explicit Log(Sink sink);

  // Passes message on, unless one of the same kind was passed on within the last minute. kind is a short constant
  // such as "fence-threshold".
  void warn(std::string_view kind, std::string_view message) const noexcept;
  // Passes message on if the environment variable SYNCGUARD_DEBUG is set (to anything but nothing or 0), or as the
  // constructor was told.
  void debug(std::string_view message) const noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace syncguard
