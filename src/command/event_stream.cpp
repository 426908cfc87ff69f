#include "command/event_stream.hpp"

#include <algorithm>
#include <utility>

namespace syncguard::command {
namespace {

using namespace std::chrono_literals;

constexpr auto lifetime = 1h;
constexpr auto heartbeat_interval = 10s;

}  // namespace

EventStream::EventStream(Clock::time_point now) : ends_at_(now + lifetime), last_event_at_(now) {}

bool EventStream::is_due(Clock::time_point now) const {
  return now - last_event_at_ >= heartbeat_interval || is_over(now);
}

bool EventStream::next_event(Observer& observer, Clock::time_point now) {
  if (auto next = observer.next_event(event_number_)) {
    // A page needs the store's clock to show the state.
    if (event_number_ == 0) clock_ = observer.clock_event();
    event_number_ = next->number;
    event_ = std::move(next->text);
  } else if (now - last_event_at_ >= heartbeat_interval) {
    event_ = std::make_shared<const std::string>(observer.clock_event());
  } else {
    return false;
  }
  sent_ = 0;
  last_event_at_ = now;
  return true;
}

std::size_t EventStream::read(Observer& observer, std::span<char> buffer, Clock::time_point now) {
  if (event_ == nullptr && !next_event(observer, now)) return 0;
  if (!clock_.empty()) {
    const auto clock = std::exchange(clock_, {});
    std::ranges::copy(clock, buffer.begin());
    return clock.size();
  }
  const auto count = std::min(buffer.size(), event_->size() - sent_);
  std::copy_n(event_->data() + sent_, count, buffer.begin());
  sent_ += count;
  if (sent_ == event_->size()) event_ = nullptr;
  return count;
}

}  // namespace syncguard::command
