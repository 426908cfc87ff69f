#include <syncguard/log.hpp>

#include "async/callback_threads.hpp"
#include "locks/log_delivery.hpp"
#include "os/fork.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace syncguard {
inline namespace v0_1 {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::minutes quiet_time{1};

// How many messages may be queued while the sink blocks.
constexpr std::size_t queue_capacity = 1024;

bool debugging_by_environment() {
  static const bool enabled = [] {
    const char* value = std::getenv("SYNCGUARD_DEBUG");
    return value != nullptr && !std::string_view(value).empty() && std::string_view(value) != "0";
  }();
  return enabled;
}

void write_to_stderr(LogLevel level, std::string_view message) {
  const std::string line =
      std::string(level == LogLevel::warning ? "syncguard: warning: " : "syncguard: ") + std::string(message) + "\n";
  // Not through stdio: a write that blocks would hold the lock of stderr and block the application's own messages.
  std::string_view rest = line;
  while (!rest.empty()) {
    const auto written = ::write(STDERR_FILENO, rest.data(), rest.size());
    if (written < 0) return;
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

// Shared with the thread that calls the sink, because the sink may block forever.
class SinkState {
 public:
  explicit SinkState(Log::Sink chosen) : sink(std::move(chosen)) {}

  void deliver(LogLevel level, std::string_view message) {
    const std::lock_guard lock(calls_sink_);
    call_sink(level, message);
  }

  // The same for a caller that must not wait for the sink: drops the message if it is busy.
  void deliver_if_idle(LogLevel level, std::string_view message) {
    const std::unique_lock lock(calls_sink_, std::try_to_lock);
    if (lock) {
      call_sink(level, message);
    } else {
      dropped.fetch_add(1, std::memory_order_relaxed);
    }
  }

  const Log::Sink sink;
  std::atomic<std::uint64_t> dropped{0};

 private:
  void call_sink(LogLevel level, std::string_view message) {
    if (const auto count = dropped.exchange(0, std::memory_order_relaxed); count != 0) {
      sink(LogLevel::warning, std::to_string(count) + " log messages were dropped: the log sink is too slow");
    }
    sink(level, message);
  }

  std::mutex calls_sink_;
};

// The part of a log that each process has for itself: a forked child gets a new one.
struct Delivery {
  explicit Delivery(const Log::Sink& log_sink) : sink(std::make_shared<SinkState>(log_sink)) {}

  bool is_repeated(std::string_view kind) {
    const std::lock_guard lock(mutex);
    const auto now = steady_clock::now();
    const auto last = last_warned.find(kind);
    if (last != last_warned.end() && now - last->second < quiet_time) return true;
    last_warned.insert_or_assign(std::string(kind), now);
    return false;
  }

  void deliver_now(LogLevel level, std::string_view message) {
    auto deliver = [to = sink, level, text = std::string(message)] { to->deliver(level, text); };
    switch (thread.post(std::move(deliver), queue_capacity)) {
      case async::CallbackThreads::Posted::queued:
        return;
      case async::CallbackThreads::Posted::full:
        sink->dropped.fetch_add(1, std::memory_order_relaxed);
        return;
      case async::CallbackThreads::Posted::no_thread:
        // A sink that delays its caller is better than an operator who is not told.
        sink->deliver_if_idle(level, message);
    }
  }

  const unsigned fork_generation = os::fork_generation();
  const std::shared_ptr<SinkState> sink;
  std::mutex mutex;
  std::map<std::string, steady_clock::time_point, std::less<>> last_warned;
  async::CallbackThreads thread{"syncguard-log", async::CallbackThreads::Growth::none};
};

}  // namespace

struct Log::State {
  explicit State(Sink chosen) : sink(std::move(chosen)), current(new Delivery(sink)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    Delivery* delivery = current;
    if (delivery->fork_generation == os::fork_generation()) delete delivery;  // NOLINT(*-owning-memory)
  }

  // The parent's thread does not exist in a forked child, and its mutexes may have been copied in their locked state.
  // The child does not touch them and starts with a new Delivery.
  Delivery& delivery() {
    Delivery* found = current;
    while (found->fork_generation != os::fork_generation()) {
      auto fresh = std::make_unique<Delivery>(sink);
      if (current.compare_exchange_strong(found, fresh.get())) return *fresh.release();
    }
    return *found;
  }

  const Sink sink;
  bool debugging = debugging_by_environment();
  std::atomic<Delivery*> current;
};

Log::Log() : Log(write_to_stderr) {}

Log::Log(LogLevel up_to) : Log(write_to_stderr, up_to) {}

Log::Log(Sink sink) : state_(std::make_shared<State>(std::move(sink))) {}

Log::Log(Sink sink, LogLevel up_to) : Log(std::move(sink)) { state_->debugging = up_to == LogLevel::debug; }

bool Log::debugging() const noexcept { return state_->debugging; }

void Log::warn(std::string_view kind, std::string_view message) const noexcept {
  try {
    Delivery& delivery = state_->delivery();
    if (!delivery.is_repeated(kind)) delivery.deliver_now(LogLevel::warning, message);
  } catch (...) {  // NOLINT(bugprone-empty-catch): by contract
  }
}

void Log::debug(std::string_view message) const noexcept {
  if (!state_->debugging) return;
  try {
    state_->delivery().deliver_now(LogLevel::debug, message);
  } catch (...) {  // NOLINT(bugprone-empty-catch): by contract
  }
}

bool Log::flush(std::chrono::milliseconds limit) const {
  auto& thread = state_->delivery().thread;
  // A sink must not wait for itself.
  return !thread.is_this_thread() && thread.wait_until_idle(steady_clock::now() + limit);
}

asio::awaitable<void> detail::LogAccess::delivered(Log log, steady_clock::time_point until) {
  auto& thread = log.state_->delivery().thread;
  if (!thread.is_this_thread()) co_await thread.idle(until);
}

}  // namespace v0_1
}  // namespace syncguard
