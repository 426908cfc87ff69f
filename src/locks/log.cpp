#include <syncguard/log.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace syncguard {
namespace {

constexpr std::chrono::minutes quiet_time{1};

bool debugging_by_environment() {
  static const bool enabled = [] {
    const char* value = std::getenv("SYNCGUARD_DEBUG");
    return value != nullptr && !std::string_view(value).empty() && std::string_view(value) != "0";
  }();
  return enabled;
}

void write_to_stderr(LogLevel level, std::string_view message) {
  // One call, so that lines of several threads do not mix.
  const std::string line =
      std::string(level == LogLevel::warning ? "syncguard: warning: " : "syncguard: ") + std::string(message) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

struct Log::State {
  Sink sink;
  bool debugging = debugging_by_environment();
  std::mutex mutex;
  std::map<std::string, std::chrono::steady_clock::time_point, std::less<>> last_warned;
};

Log::Log() : Log(write_to_stderr) {}

Log::Log(LogLevel up_to) : Log() { state_->debugging = up_to == LogLevel::debug; }

Log::Log(Sink sink) : state_(std::make_shared<State>()) { state_->sink = std::move(sink); }

void Log::warn(std::string_view kind, std::string_view message) const noexcept {
  try {
    {
      const std::lock_guard lock(state_->mutex);
      const auto now = std::chrono::steady_clock::now();
      const auto last = state_->last_warned.find(kind);
      if (last != state_->last_warned.end() && now - last->second < quiet_time) return;
      state_->last_warned.insert_or_assign(std::string(kind), now);
    }
    state_->sink(LogLevel::warning, message);
  } catch (...) {  // NOLINT(bugprone-empty-catch): by contract
  }
}

void Log::debug(std::string_view message) const noexcept {
  if (!state_->debugging) return;
  try {
    state_->sink(LogLevel::debug, message);
  } catch (...) {  // NOLINT(bugprone-empty-catch): by contract
  }
}

}  // namespace syncguard
