// Pending requests to a Redis server. No I/O, and no lock: Connection's mutex guards all of it.
#pragma once

#include "backends/redis/protocol.hpp"

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

// A coroutine that waits for a reply. Not an async::Promise, which would post every reply to the executor and create a
// timer for every request: the thread that reads a reply resumes the coroutine directly.
struct Suspended {
  Suspended() = default;
  Suspended(const Suspended&) = delete;
  Suspended& operator=(const Suspended&) = delete;
  virtual ~Suspended() = default;

  // Exactly one of these is called, once: resume on this thread, resume_later on another one.
  virtual void resume() = 0;
  virtual void resume_later() = 0;
};

// A request is unsent, then sent, then answered. A request without an answer can be abandoned: at its deadline, by a
// stop request, or because the connection was lost or closed. An abandoned request that was sent keeps its place until
// its reply arrives, because replies arrive in the order of the requests.
class Request {
 public:
  Request(std::string bytes, Clock::time_point deadline) : bytes_(std::move(bytes)), deadline_(deadline) {}

  // From now on, this caller waits. It is resumed immediately if the request has already ended.
  void await(std::unique_ptr<Suspended> caller);

  // The result, for the resumed caller. Throws LockError if the request was abandoned.
  struct Answer {
    Reply reply;
    // The number of the connection on which the reply arrived, from 1.
    std::uint64_t connection = 0;
  };
  Answer take_answer();

  // Abandons the request, in doubt if it was sent. Does nothing if it has already ended.
  void fail(ErrorCode code, const char* message);
  // The same, but the error itself says whether it is in doubt.
  void fail(const LockError& error);
  // Returns the waiting caller, if any. Resume it without the mutex.
  std::unique_ptr<Suspended> answer(Answer answer);

  [[nodiscard]] bool is_finished() const noexcept { return finished_; }
  [[nodiscard]] bool is_awaited() const noexcept { return caller_ != nullptr; }
  [[nodiscard]] Clock::time_point deadline() const noexcept { return deadline_; }
  [[nodiscard]] std::optional<Clock::time_point> sent_at() const noexcept { return sent_at_; }
  // Marks the request as sent and returns its bytes.
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

// A queue of requests.
class RequestQueue {
 public:
  [[nodiscard]] bool empty() const noexcept { return requests_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return requests_.size(); }

  void add(RequestPtr request) { requests_.push_back(std::move(request)); }
  // Removes and returns the first request. The queue must not be empty.
  RequestPtr take();

  // Fails and removes all requests.
  void fail_all(const LockError& error);
  // Abandons requests whose deadline has passed. Returns the next deadline, or time_point::max() if there is none.
  Clock::time_point expire(Clock::time_point now, const char* message);

 protected:
  std::deque<RequestPtr> requests_;
};

// Requests that were not written yet.
class Unsent : public RequestQueue {
 public:
  // Removes abandoned requests.
  void forget_finished();
  // Removes requests without a waiting caller.
  void forget_unawaited();
};

// Requests of one connection that wait for their replies.
class Sent : public RequestQueue {
 public:
  explicit Sent(Clock::time_point now) : last_heard_(now) {}

  // Moves unsent requests here and appends their bytes to the output, up to the size of one write.
  void take_from(Unsent& unsent, std::string& output, Clock::time_point now);
  // Removes and returns the request that the next reply belongs to. Throws ProtocolError if there is none.
  RequestPtr answered(Clock::time_point now);
  // How long replies have been pending without any arriving: the beginning of that time; nullopt if none is pending.
  [[nodiscard]] std::optional<Clock::time_point> silent_since() const;

 private:
  Clock::time_point last_heard_;
};

}  // namespace syncguard::redis
