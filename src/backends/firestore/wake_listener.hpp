// Wakes waiters when a lock is deleted. Uses one Listen stream per client, with a target for each watched document.
#pragma once

#include "backends/firestore/connection.hpp"
#include "backends/firestore/watches.hpp"

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace syncguard::firestore {

class WakeListener : public std::enable_shared_from_this<WakeListener> {
 public:
  explicit WakeListener(std::shared_ptr<Connection> connection);
  WakeListener(const WakeListener&) = delete;
  WakeListener& operator=(const WakeListener&) = delete;
  ~WakeListener();

  // After this returns, and until remove(), wake is called when the lock is deleted, when its holder changes, and when
  // the stream is lost: changes may have been missed, and every waiter must be added again. After repeated failures the
  // stream is not reopened for a while: LockError(service_unavailable).
  asio::awaitable<void> add(std::string document, LockId waiter, std::function<void()> wake, CallLimits limits);
  void remove(const std::string& document, const LockId& waiter);

  // The last reported state of a document. A document that existed only briefly between two deletions is never
  // reported: a caller that finds it although it was reported deleted cannot rely on a notification of its deletion.
  enum class Notice {
    nothing,           // it is not watched, or it exists
    deleted,           // it was deleted
    recently_deleted,  // it was deleted a moment ago, and may exist again
  };
  [[nodiscard]] Notice last_notice(const std::string& document);

  // Ends the stream, and waits for its end within the limits.
  asio::awaitable<void> close(CallLimits limits);

 private:
  class Stream;

  // Called by the stream.
  void received(const wire::ListenResponse& response);
  enum class End { ended_by_server, ended_by_silence };
  void ended(const Stream* stream, std::optional<LockError> failure, End end);
  // Returns null on success, or the stream if it did not start to report within the limits.
  asio::awaitable<std::shared_ptr<Stream>> try_to_add(OpenChannel channel, std::string document, LockId waiter,
                                                      std::function<void()> wake, CallLimits limits);

  const std::shared_ptr<Connection> connection_;

  std::mutex mutex_;
  bool closed_ = false;
  std::shared_ptr<Stream> stream_;
  Watches watches_;
  // The number of consecutive failed streams, and when the next one may be opened.
  int failed_streams_ = 0;
  std::chrono::steady_clock::time_point next_stream_at_{};
};

}  // namespace syncguard::firestore
