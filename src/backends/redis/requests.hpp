// What was asked of a Redis server and is not answered yet. No I/O, and no lock: Link's mutex guards all of it.
#pragma once

#include "backends/redis/reply.hpp"

#include <syncguard/error.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

namespace syncguard::redis {

using Clock = std::chrono::steady_clock;

// A coroutine that waits for a reply.
struct Suspended {
  Suspended() = default;
  Suspended(const Suspended&) = delete;
  Suspended& operator=(const Suspended&) = delete;
  virtual ~Suspended() = default;

  // Once, one of the two: on this thread, or elsewhere and soon.
  virtual void resume() = 0;
  virtual void resume_later() = 0;
};

//   unsent -> sent -> answered
//     |         |
//     +---------+---> given up (deadline, stop, lost, closed); the reply of one that was sent is still awaited, since
//                     the next reply belongs to the next request
class Request {
 public:
  Request(std::string bytes, Clock::time_point deadline) : bytes_(std::move(bytes)), deadline_(deadline) {}

  // Somebody waits from now on; at once told to go on if the request is given up already.
  void await(std::unique_ptr<Suspended> caller);

  // What came of it, once the caller goes on. Throws LockError if it was given up.
  struct Answer {
    Reply reply;
    // On which connection it came, counted from one.
    std::uint64_t connection = 0;
  };
  Answer take_answer();

  // Gives up, in doubt if it was sent. Nothing happens to one that is finished.
  void give_up(ErrorCode code, const char* message);
  // The same with an error that says itself whether it is in doubt.
  void fail(const LockError& error);
  // The caller, if somebody waits for this: to be resumed without the mutex.
  std::unique_ptr<Suspended> answer(Answer answer);

  [[nodiscard]] bool is_finished() const noexcept { return finished_; }
  [[nodiscard]] bool is_awaited() const noexcept { return caller_ != nullptr; }
  [[nodiscard]] Clock::time_point deadline() const noexcept { return deadline_; }
  [[nodiscard]] std::optional<Clock::time_point> sent_at() const noexcept { return sent_at_; }
  // To be written now.
  const std::string& send(Clock::time_point now);

 private:
  const std::string bytes_;
  const Clock::time_point deadline_;
  std::optional<Clock::time_point> sent_at_{};
  bool finished_ = false;
  Answer answer_{};
  std::optional<LockError> error_{};
  std::unique_ptr<Suspended> caller_{};
};
using RequestPtr = std::shared_ptr<Request>;

// Requests in an order.
class RequestQueue {
 public:
  [[nodiscard]] bool empty() const noexcept { return requests_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return requests_.size(); }

  void add(RequestPtr request) { requests_.push_back(std::move(request)); }
  // The first one. The queue must not be empty.
  RequestPtr take();

  // All of them, finished and gone.
  void fail_all(const LockError& error);
  // Gives up those whose time is over. When the next one's is; the end of time if there is none.
  Clock::time_point expire(Clock::time_point now);

 protected:
  std::deque<RequestPtr> requests_;
};

// Those to be written, in the order in which they came.
class Unsent : public RequestQueue {
 public:
  // Forgets those that were given up, which need no place.
  void forget_finished();
  void forget_unawaited();
};

// Those of one connection whose replies are to come, in this order.
class Sent : public RequestQueue {
 public:
  explicit Sent(Clock::time_point now) : last_heard_(now) {}

  // Moves what is unsent here, and its bytes to the output, until that is enough for one write.
  void take_from(Unsent& unsent, std::string& output, Clock::time_point now);
  // The one that is answered now. Throws ProtocolError if none is to be.
  RequestPtr answered(Clock::time_point now);
  // Since when an answer is due and no word has come; nothing if none is due.
  [[nodiscard]] std::optional<Clock::time_point> silent_since() const;

 private:
  Clock::time_point last_heard_;
};

}  // namespace syncguard::redis
