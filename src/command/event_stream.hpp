// The stream of server-sent events that a viewer of `serve` reads.
#pragma once

#include "command/observer.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace syncguard::command {

// Sends the state of the store, then each change. Does no I/O and reads no clock; all times are on the steady clock.
class EventStream {
 public:
  using Clock = std::chrono::steady_clock;

  explicit EventStream(Clock::time_point now);

  // Copies the next bytes to the buffer and returns how many; 0 without a new event. The buffer must have room for
  // an Observer::clock_event().
  std::size_t read(Observer& observer, std::span<char> buffer, Clock::time_point now);

  // Whether the viewer has got all of the last event, so that the stream can end.
  [[nodiscard]] bool is_between_events() const { return event_ == nullptr; }
  // Whether the stream should end. A page then opens another one.
  [[nodiscard]] bool is_over(Clock::time_point now) const { return now >= ends_at_; }
  // Whether the stream has to continue even without a new event: to send a heartbeat, or to end.
  [[nodiscard]] bool is_due(Clock::time_point now) const;

 private:
  // Chooses what to send next. False if there is nothing.
  bool next_event(Observer& observer, Clock::time_point now);

  const Clock::time_point ends_at_;
  Clock::time_point last_event_at_;
  std::uint64_t event_number_ = 0;
  // Sent before the event.
  std::string clock_;
  std::shared_ptr<const std::string> event_;
  // How many bytes of the event were sent.
  std::size_t sent_ = 0;
};

}  // namespace syncguard::command
