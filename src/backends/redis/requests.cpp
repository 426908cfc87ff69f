#include "backends/redis/requests.hpp"

#include <algorithm>
#include <utility>

namespace syncguard::redis {
namespace {

// The maximum size of one write.
constexpr std::size_t batch_bytes = 64 * 1024;

}  // namespace

void Request::await(std::unique_ptr<Suspended> caller) {
  if (finished_) return caller->resume_later();
  caller_ = std::move(caller);
}

Request::Answer Request::take_answer() {
  if (error_) throw LockError(*error_);
  return std::move(answer_);
}

void Request::fail(ErrorCode code, const char* message) {
  if (!finished_) fail(LockError(code, message, sent_at_ ? Effect::in_doubt : Effect::none));
}

void Request::fail(const LockError& error) {
  if (std::exchange(finished_, true)) return;
  error_ = error;
  // Any thread may abandon a request while it holds the mutex, so the coroutine resumes on another thread.
  if (const auto caller = std::move(caller_)) caller->resume_later();
}

std::unique_ptr<Suspended> Request::answer(Answer answer) {
  if (std::exchange(finished_, true)) return nullptr;
  answer_ = std::move(answer);
  return std::move(caller_);
}

const std::string& Request::send(Clock::time_point now) {
  sent_at_ = now;
  return bytes_;
}

RequestPtr RequestQueue::take() {
  auto request = std::move(requests_.front());
  requests_.pop_front();
  return request;
}

void RequestQueue::fail_all(const LockError& error) {
  for (const auto& request : std::exchange(requests_, {})) request->fail(error);
}

Clock::time_point RequestQueue::expire(Clock::time_point now, const char* message) {
  auto next = Clock::time_point::max();
  for (const auto& request : requests_) {
    if (request->deadline() <= now) request->fail(ErrorCode::network_timeout, message);
    if (!request->is_finished()) next = std::min(next, request->deadline());
  }
  return next;
}

void Unsent::forget_finished() {
  std::erase_if(requests_, [](const RequestPtr& request) { return request->is_finished(); });
}

void Unsent::forget_unawaited() {
  std::erase_if(requests_, [](const RequestPtr& request) { return !request->is_awaited(); });
}

void Sent::take_from(Unsent& unsent, std::string& output, Clock::time_point now) {
  while (!unsent.empty() && output.size() < batch_bytes) {
    auto request = unsent.take();
    if (request->is_finished()) continue;
    output += request->send(now);
    add(std::move(request));
  }
}

RequestPtr Sent::answered(Clock::time_point now) {
  if (empty()) throw ProtocolError("a reply without a request");
  last_heard_ = now;
  return take();
}

std::optional<Clock::time_point> Sent::silent_since() const {
  if (empty()) return std::nullopt;
  return std::max(last_heard_, *requests_.front()->sent_at());
}

}  // namespace syncguard::redis
