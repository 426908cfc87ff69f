#include "backends/firestore/wake_listener.hpp"

#include "backends/firestore/errors.hpp"
#include "core/durations.hpp"
#include "core/reservation.hpp"

#include <algorithm>
#include <deque>
#include <utility>

namespace syncguard::firestore {
namespace {

constexpr Method<wire::ListenRequest, wire::ListenResponse> listen{"/google.firestore.v1.Firestore/Listen"};

// A stream that lasted this long was useful: its end does not count as a failure.
constexpr std::chrono::seconds min_useful_lifetime{10};
// If a stream does not start to report within this time, it never will. Google's emulator sometimes behaves this way.
constexpr std::chrono::seconds max_silence{1};
// The delays before a stream is reopened after repeated failures: up to ten seconds, with jitter.
constexpr WaitOptions pauses{.retry_delay = std::chrono::milliseconds(150), .jitter = Jitter::equal};
constexpr int max_doublings = 6;

}  // namespace

// Keeps itself alive until gRPC is done with it. gRPC calls it from its own threads, never from within Start….
class WakeListener::Stream : public grpc::ClientBidiReactor<wire::ListenRequest, wire::ListenResponse>,
                             public std::enable_shared_from_this<Stream> {
 public:
  explicit Stream(std::weak_ptr<WakeListener> wake_listener) : wake_listener_(std::move(wake_listener)) {}

  void start(const Connection& connection, const OpenChannel& channel) {
    const std::lock_guard lock(mutex_);
    self_ = shared_from_this();
    connection.prepare(context_, channel, Connection::Deadline::max());
    const os::SignalsBlocked blocked;
    Stub<wire::ListenRequest, wire::ListenResponse>(channel.channel)
        .PrepareBidiStreamingCall(&context_, listen.name, {}, this);
    // Allows writes outside of gRPC's callbacks.
    AddHold();
    StartRead(&incoming_);
    StartCall();
    open_ = true;
    write_next();
  }

  void send(wire::ListenRequest request) {
    const os::SignalsBlocked blocked;
    const std::lock_guard lock(mutex_);
    outgoing_.push_back(std::move(request));
    if (open_ && outgoing_.size() == 1) write_next();
  }

  void cancel() {
    const os::SignalsBlocked blocked;
    context_.TryCancel();
  }

  const std::chrono::steady_clock::time_point opened_at = std::chrono::steady_clock::now();
  const async::Event over;

 private:
  void OnReadDone(bool ok) override {
    if (ok) {
      try {
        if (const auto wake_listener = wake_listener_.lock()) wake_listener->received(incoming_);
      } catch (const std::exception&) {
        // Memory is exhausted, or a wake function has thrown. Changes may have been missed, so end the stream.
        context_.TryCancel();
      }
      StartRead(&incoming_);
      return;
    }
    // An unreadable message also ends the stream.
    context_.TryCancel();
    const std::lock_guard lock(mutex_);
    open_ = false;
    RemoveHold();
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    // If the write failed, the stream is ending.
    if (!ok || !open_) return;
    outgoing_.pop_front();
    write_next();
  }

  void OnDone(const grpc::Status& status) override {
    const auto self = std::move(self_);
    if (const auto wake_listener = wake_listener_.lock()) {
      std::optional<LockError> failure;
      if (!status.ok()) failure = failure_of(status);
      wake_listener->ended(this, std::move(failure), End::ended_by_server);
    }
    over.set();
  }

  [[nodiscard]] LockError failure_of(const grpc::Status& status) const {
    if (is_token_failure(status, context_)) return token_error(status);
    // The listener canceled the stream; another one may work.
    if (status.error_code() == grpc::StatusCode::CANCELLED) {
      return LockError(ErrorCode::service_unavailable, "cannot read the Firestore Listen stream");
    }
    return read_error(status);
  }

  // Requires the mutex. gRPC allows one write at a time.
  void write_next() {
    if (!outgoing_.empty()) StartWrite(&outgoing_.front());
  }

  const std::weak_ptr<WakeListener> wake_listener_;
  grpc::ClientContext context_;
  wire::ListenResponse incoming_;
  std::shared_ptr<Stream> self_;

  std::mutex mutex_;
  bool open_ = false;
  std::deque<wire::ListenRequest> outgoing_;
};

WakeListener::WakeListener(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}

WakeListener::~WakeListener() {
  if (stream_) stream_->cancel();
}

asio::awaitable<void> WakeListener::add(std::string document, LockId waiter, std::function<void()> wake,
                                        CallLimits limits) {
  const auto channel = co_await connection_->open(limits);
  CallLimits first = limits;
  first.deadline = std::min(limits.deadline, std::chrono::steady_clock::now() + max_silence);
  const auto silent = co_await try_to_add(channel, document, waiter, wake, first);
  if (!silent) co_return;
  if (first.deadline < limits.deadline) {
    ended(silent.get(), LockError(ErrorCode::service_unavailable, "the Firestore Listen stream is silent"),
          End::ended_by_silence);
    silent->cancel();
    const auto silent_again = co_await try_to_add(channel, document, waiter, wake, limits);
    if (!silent_again) co_return;
  }
  throw LockError(ErrorCode::network_timeout, "timed out opening the Firestore Listen stream");
}

asio::awaitable<std::shared_ptr<WakeListener::Stream>> WakeListener::try_to_add(OpenChannel channel,
                                                                                std::string document, LockId waiter,
                                                                                std::function<void()> wake,
                                                                                CallLimits limits) {
  std::optional<async::Event> decided;
  std::shared_ptr<Stream> stream;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) throw LockError(ErrorCode::aborted, "the client is closed");
    if (!stream_) {
      if (std::chrono::steady_clock::now() < next_stream_at_) {
        throw LockError(ErrorCode::service_unavailable, "the Firestore Listen stream keeps ending");
      }
      watches_.set_failure(std::nullopt);
      watches_.forget_reports();
      stream_ = std::make_shared<Stream>(weak_from_this());
      stream_->start(*connection_, channel);
    }
    stream = stream_;
    const auto [watch, is_new] = watches_.add(document, waiter, std::move(wake));
    if (watch.is_active) co_return nullptr;
    decided = watch.decided;
    if (is_new) {
      wire::ListenRequest request;
      request.set_database(connection_->database());
      auto& target = *request.mutable_add_target();
      target.set_target_id(watch.target);
      target.mutable_documents()->add_documents(document);
      stream_->send(std::move(request));
    }
  }
  const auto result = co_await decided->wait(limits.deadline, limits.stop);
  if (result != async::WaitResult::set) {
    remove(document, waiter);
    async::expect_no_stop(limits.stop);
    co_return stream;
  }
  const std::lock_guard lock(mutex_);
  const auto* const watch = watches_.find(document);
  if (watch == nullptr || !watch->is_active || !watch->waiters.contains(waiter)) {
    throw watches_.failure() ? LockError(*watches_.failure())
                             : LockError(ErrorCode::service_unavailable, "the Firestore Listen stream ended");
  }
  co_return nullptr;
}

void WakeListener::remove(const std::string& document, const LockId& waiter) {
  const std::lock_guard lock(mutex_);
  const auto target = watches_.remove(document, waiter);
  if (!target || !stream_) return;
  wire::ListenRequest request;
  request.set_database(connection_->database());
  request.set_remove_target(*target);
  stream_->send(std::move(request));
}

void WakeListener::received(const wire::ListenResponse& response) {
  Watches::Wakes wakes;
  {
    const std::lock_guard lock(mutex_);
    wakes = watches_.received(response, std::chrono::steady_clock::now());
  }
  for (const auto& wake : wakes) wake();
}

WakeListener::Notice WakeListener::last_notice(const std::string& document) {
  const std::lock_guard lock(mutex_);
  const auto* const watch = watches_.find(document);
  if (watch == nullptr) return Notice::nothing;
  if (std::chrono::steady_clock::now() - watch->reported_deleted_at < core::reservation_time) {
    return Notice::recently_deleted;
  }
  return watch->reported_deleted ? Notice::deleted : Notice::nothing;
}

void WakeListener::ended(const Stream* stream, std::optional<LockError> failure, End end) {
  Watches::Wakes wakes;
  {
    const std::lock_guard lock(mutex_);
    if (stream_.get() != stream) return;
    const auto now = std::chrono::steady_clock::now();
    const bool was_useful =
        now - stream_->opened_at >= min_useful_lifetime || (end == End::ended_by_silence && watches_.has_reports());
    failed_streams_ = was_useful ? 0 : failed_streams_ + 1;
    // A stream that fails for the first time is reopened immediately.
    if (failed_streams_ > 1) {
      const int doublings = std::min(failed_streams_, max_doublings);
      next_stream_at_ = now + core::retry_delay(pauses, doublings + 1, core::random_fraction());
    }
    stream_.reset();
    if (failure && closed_) failure = LockError(ErrorCode::aborted, "the client is closed");
    if (failure) watches_.set_failure(std::move(failure));
    wakes = watches_.end_all();
  }
  for (const auto& wake : wakes) wake();
}

asio::awaitable<void> WakeListener::close(CallLimits limits) {
  std::shared_ptr<Stream> stream;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    stream = stream_;
  }
  if (!stream) co_return;
  stream->cancel();
  (void)co_await stream->over.wait(limits.deadline, limits.stop);
}

}  // namespace syncguard::firestore
