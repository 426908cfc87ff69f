// How waiters learn that a lock is gone: one Listen stream per client, with a target for each awaited document.
#pragma once

#include "backends/firestore/channel.hpp"
#include "backends/firestore/documents.hpp"

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace syncguard::firestore {

class Listener : public std::enable_shared_from_this<Listener> {
 public:
  explicit Listener(std::shared_ptr<Channel> channel);
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener();

  // From when it returns until remove, wake is called whenever the lock is deleted or changes hands, and when the
  // stream is lost: nobody knows then what was missed, and everything has to be added again. A stream that is lost over
  // and over is left alone for a while: LockError(service_unavailable).
  asio::awaitable<void> add(std::string document, LockId waiter, std::function<void()> wake, CallLimits limits);
  void remove(const std::string& document, const LockId& waiter);

  // What was last told of a document. One that was there for a moment between two deletions is never told of: who finds
  // it there where it is told gone cannot rely on being told when it is gone.
  enum class Told {
    nothing,    // it is not watched, or it is there
    gone,       // it is gone
    gone_just,  // it was gone a moment ago, whatever came since
  };
  [[nodiscard]] Told last_told(const std::string& document);

  // Ends the stream, and waits for that as long as limits allow.
  asio::awaitable<void> close(CallLimits limits);

 private:
  class Stream;

  // What is known of one awaited document.
  struct Watch {
    std::int32_t target;
    // Whether changes are reported from now on.
    bool in_force = false;
    bool told_gone = false;
    // Who had it when it was there.
    std::optional<std::string> holder{};
    std::chrono::steady_clock::time_point told_gone_at{};
    std::map<LockId, std::function<void()>> waiters{};
    std::vector<std::shared_ptr<async::WakeUp>> waiting_to_be_in_force{};
  };
  using Watches = std::map<std::string, Watch>;

  // From the stream.
  void received(const wire::ListenResponse& response);
  using Wakes = std::vector<std::function<void()>>;
  void changed(const wire::TargetChange& change);
  Wakes apply(const wire::TargetChange& change);
  // The lock has this holder, or is gone.
  void told(const std::string& document, const std::optional<std::string>& holder);
  void counted(const wire::ExistenceFilter& filter);
  enum class End { by_server, by_silence };
  void ended(const Stream* stream, const grpc::Status& status, End end);
  // The stream, if it does not begin to tell within the limits.
  asio::awaitable<std::shared_ptr<Stream>> try_to_add(std::shared_ptr<grpc::Channel> connection, std::string document,
                                                      LockId waiter, std::function<void()> wake, CallLimits limits);
  // Everybody who waits for it hears that it is lost.
  static void give_up(const Watch& watch, Wakes& wakes);
  static void add_wakes(const Watch& watch, Wakes& wakes);

  const std::shared_ptr<Channel> channel_;

  std::mutex mutex_;
  bool closed_ = false;
  std::shared_ptr<Stream> stream_;
  bool has_told_ = false;  // anything at all
  std::int32_t next_target_ = 1;
  Watches watches_;
  std::optional<LockError> failure_;
  // Streams that did not last, one after the other, and when to try the next.
  int short_streams_ = 0;
  std::chrono::steady_clock::time_point next_stream_at_{};
};

}  // namespace syncguard::firestore
