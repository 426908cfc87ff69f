// Reads the store for all viewers of `serve`.
#pragma once

#include "command/lock_history.hpp"

#include <syncguard/syncguard.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace syncguard::command {

struct ObserverOptions {
  // Only keys that begin with this.
  std::string prefix{};
  // From the end of a scan to the next one. Longer after slow scans, so that at most a quarter of the time is spent on
  // reading, and after errors.
  std::chrono::milliseconds interval{1000};
  // How often the store is diagnosed.
  std::chrono::milliseconds diagnosis_interval{300'000};
  // Whether the page shows a button that breaks a lock.
  bool can_break = false;
};

// Reads the store on one thread, however many viewers there are. Thread-safe.
class Observer {
 public:
  // on_event is called on the observer's thread after each new event.
  Observer(Locks locks, ObserverOptions options, std::function<void()> on_event);
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
  ~Observer() { stop(); }

  // Ends a scan that is running, and runs the remaining tasks. Later ones are rejected. May be called repeatedly, but
  // not by several threads.
  void stop();

  // One message of the stream of server-sent events.
  struct Event {
    std::uint64_t number = 0;
    std::shared_ptr<const std::string> text;
  };

  // The event after the one with this number; the whole state if there is none of that number anymore, as for 0. The
  // state may be older than the latest event, but the events after it follow. nullopt if there is nothing new.
  [[nodiscard]] std::optional<Event> next_event(std::uint64_t after);

  // An event with the time on the store's clock. Sent at the beginning of a stream, and as its heartbeat.
  [[nodiscard]] std::string clock_event() const;

  // A page of the latest scan as JSON, in the order of keys; cursor is the last key of the page before. nullopt before
  // the first scan.
  [[nodiscard]] std::optional<std::string> locks_page(std::string_view prefix, std::string_view cursor,
                                                      std::size_t limit) const;
  // For Prometheus.
  [[nodiscard]] std::string metrics() const;
  // Empty if the last scan succeeded, otherwise why not.
  [[nodiscard]] std::string problem() const;

  // Runs a task on the observer's thread, between two requests of a scan, or at once, followed by a scan. Returns false
  // if too many wait.
  bool post(std::function<void(const Locks&, const std::stop_token&)> task);

 private:
  using Clock = std::chrono::steady_clock;

  void run(const std::stop_token& stop);
  void run_tasks(const std::stop_token& stop);
  void scan(const std::stop_token& stop);
  void diagnose(const std::stop_token& stop);
  void set_problem(std::string problem);
  // The mutex must be locked.
  void publish(std::string_view name, const std::string& json);
  [[nodiscard]] std::string whole_state() const;
  [[nodiscard]] bool has_scanned() const { return scanned_at_ != Clock::time_point{}; }

  const Locks locks_;
  const ObserverOptions options_;
  const std::function<void()> on_event_;

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  LockHistory history_;
  std::vector<Finding> findings_;
  Timestamp diagnosed_at_{};
  std::string problem_ = "the store was not read yet";
  std::chrono::duration<double> scan_took_{};
  Clock::time_point scanned_at_{};
  std::uint64_t scans_failed_ = 0;
  // The most recent events; older ones are replaced by the whole state.
  std::deque<Event> events_;
  std::size_t events_size_ = 0;
  std::uint64_t last_number_ = 0;
  // The whole state as of the event with this number. All viewers share it, so that slow ones do not need a copy each.
  Event state_;
  std::deque<std::function<void(const Locks&, const std::stop_token&)>> tasks_;

  std::jthread thread_;
};

}  // namespace syncguard::command
