#include "backends/firestore/listener.hpp"

#include "backends/firestore/server_error.hpp"
#include "core/random.hpp"
#include "core/reservation.hpp"
#include "core/retry_schedule.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

namespace syncguard::firestore {
namespace {

constexpr Method<wire::ListenRequest, wire::ListenResponse> listen{"/google.firestore.v1.Firestore/Listen"};

// A stream that lasted this long was cut by chance.
constexpr std::chrono::seconds lasting{10};
// One that does not begin to tell within this time never will: Google's emulator has such moments.
constexpr std::chrono::seconds longest_silence{1};
// Between streams that do not last: up to ten seconds, and not in step with other clients.
constexpr WaitOptions pauses{.retry_delay = std::chrono::milliseconds(150), .jitter = Jitter::equal};
constexpr int most_doublings = 6;

// Whoever has the lock; nobody in particular if the document is no lock.
std::string holder_in(const wire::Document& document) {
  const auto& fields = document.fields();
  const auto found = fields.find("lockId");
  return found == fields.end() ? "" : found->second.string_value();
}

}  // namespace

// Keeps itself alive until gRPC is done with it. gRPC calls it from threads of its own, never from within Start….
class Listener::Stream : public grpc::ClientBidiReactor<wire::ListenRequest, wire::ListenResponse>,
                         public std::enable_shared_from_this<Stream> {
 public:
  explicit Stream(std::weak_ptr<Listener> listener) : listener_(std::move(listener)) {}

  void start(const Channel& channel, const std::shared_ptr<grpc::Channel>& connection) {
    const std::lock_guard lock(mutex_);
    self_ = shared_from_this();
    channel.prepare(context_, Channel::Deadline::max());
    const async::SignalsBlocked blocked;
    Stub<wire::ListenRequest, wire::ListenResponse>(connection)
        .PrepareBidiStreamingCall(&context_, listen.name, {}, this);
    // For writes that do not come from gRPC's calls of ours.
    AddHold();
    StartRead(&incoming_);
    StartCall();
    open_ = true;
    write_next();
  }

  void send(wire::ListenRequest request) {
    const async::SignalsBlocked blocked;
    const std::lock_guard lock(mutex_);
    outgoing_.push_back(std::move(request));
    if (open_ && outgoing_.size() == 1) write_next();
  }

  void cancel() {
    const async::SignalsBlocked blocked;
    context_.TryCancel();
  }

  const std::chrono::steady_clock::time_point opened_at = std::chrono::steady_clock::now();
  const std::shared_ptr<async::WakeUp> over = std::make_shared<async::WakeUp>();

 private:
  void OnReadDone(bool ok) override {
    if (ok) {
      try {
        if (const auto listener = listener_.lock()) listener->received(incoming_);
      } catch (const std::exception&) {
        // Out of memory, or a waiter's wake-up that throws: what was missed is not known.
        context_.TryCancel();
      }
      StartRead(&incoming_);
      return;
    }
    const std::lock_guard lock(mutex_);
    open_ = false;
    RemoveHold();
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    // If it is not, the stream is at its end.
    if (!ok || !open_) return;
    outgoing_.pop_front();
    write_next();
  }

  void OnDone(const grpc::Status& status) override {
    const auto self = std::move(self_);
    if (const auto listener = listener_.lock()) listener->ended(this, status, End::by_server);
    over->wake();
  }

  // Under the mutex. One write at a time.
  void write_next() {
    if (!outgoing_.empty()) StartWrite(&outgoing_.front());
  }

  const std::weak_ptr<Listener> listener_;
  grpc::ClientContext context_;
  wire::ListenResponse incoming_;
  std::shared_ptr<Stream> self_;

  std::mutex mutex_;
  bool open_ = false;
  std::deque<wire::ListenRequest> outgoing_;
};

Listener::Listener(std::shared_ptr<Channel> channel) : channel_(std::move(channel)) {}

Listener::~Listener() {
  if (stream_) stream_->cancel();
}

asio::awaitable<void> Listener::add(std::string document, LockId waiter, std::function<void()> wake,
                                    CallLimits limits) {
  const auto connection = co_await channel_->open(limits);
  CallLimits first = limits;
  first.deadline = std::min(limits.deadline, std::chrono::steady_clock::now() + longest_silence);
  const auto silent = co_await try_to_add(connection, document, waiter, wake, first);
  if (!silent) co_return;
  if (first.deadline < limits.deadline) {
    ended(silent.get(), {grpc::StatusCode::UNAVAILABLE, "silent"}, End::by_silence);
    silent->cancel();
    const auto silent_again = co_await try_to_add(connection, document, waiter, wake, limits);
    if (!silent_again) co_return;
  }
  throw LockError(ErrorCode::network_timeout, "Firestore could not be listened to in time");
}

asio::awaitable<std::shared_ptr<Listener::Stream>> Listener::try_to_add(std::shared_ptr<grpc::Channel> connection,
                                                                        std::string document, LockId waiter,
                                                                        std::function<void()> wake, CallLimits limits) {
  const auto wake_up = std::make_shared<async::WakeUp>();
  std::shared_ptr<Stream> stream;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) throw LockError(ErrorCode::aborted, "the client is closed");
    if (!stream_) {
      if (std::chrono::steady_clock::now() < next_stream_at_) {
        throw LockError(ErrorCode::service_unavailable, "Firestore's stream of changes does not last");
      }
      failure_.reset();
      has_told_ = false;
      stream_ = std::make_shared<Stream>(weak_from_this());
      stream_->start(*channel_, connection);
    }
    stream = stream_;
    auto [entry, is_new] = watches_.try_emplace(document, Watch{.target = next_target_});
    auto& watch = entry->second;
    watch.waiters.insert_or_assign(waiter, std::move(wake));
    if (watch.in_force) co_return nullptr;
    watch.waiting_to_be_in_force.push_back(wake_up);
    if (is_new) {
      next_target_ = next_target_ % std::numeric_limits<std::int32_t>::max() + 1;
      wire::ListenRequest request;
      request.set_database(channel_->database());
      auto& target = *request.mutable_add_target();
      target.set_target_id(watch.target);
      target.mutable_documents()->add_documents(document);
      stream_->send(std::move(request));
    }
  }
  const auto reason = co_await wake_up->wait(limits.deadline, limits.stop);
  if (reason != async::WakeUp::Reason::woken) {
    remove(document, waiter);
    async::expect_no_stop(limits.stop);
    co_return stream;
  }
  const std::lock_guard lock(mutex_);
  const auto found = watches_.find(document);
  if (found == watches_.end() || !found->second.in_force || !found->second.waiters.contains(waiter)) {
    throw failure_ ? LockError(*failure_)
                   : LockError(ErrorCode::service_unavailable, "Firestore stopped telling about changes");
  }
  co_return nullptr;
}

void Listener::remove(const std::string& document, const LockId& waiter) {
  const std::lock_guard lock(mutex_);
  const auto found = watches_.find(document);
  if (found == watches_.end()) return;
  found->second.waiters.erase(waiter);
  if (!found->second.waiters.empty()) return;
  wire::ListenRequest request;
  request.set_database(channel_->database());
  request.set_remove_target(found->second.target);
  watches_.erase(found);
  if (stream_) stream_->send(std::move(request));
}

void Listener::received(const wire::ListenResponse& response) {
  switch (response.response_type_case()) {
    case wire::ListenResponse::kTargetChange:
      return changed(response.target_change());
    case wire::ListenResponse::kDocumentDelete:
      return told(response.document_delete().document(), {});
    case wire::ListenResponse::kDocumentRemove:
      return told(response.document_remove().document(), {});
    case wire::ListenResponse::kDocumentChange:
      return told(response.document_change().document().name(), holder_in(response.document_change().document()));
    case wire::ListenResponse::kFilter:
      return counted(response.filter());
    default:
      return;
  }
}

void Listener::changed(const wire::TargetChange& change) {
  Wakes wakes;
  {
    const std::lock_guard lock(mutex_);
    wakes = apply(change);
  }
  for (const auto& wake : wakes) wake();
}

// Under the mutex.
Listener::Wakes Listener::apply(const wire::TargetChange& change) {
  using Change = wire::TargetChange;
  const auto is_about = [&](const Watch& watch) {
    const auto& targets = change.target_ids();
    // None: all of them.
    return targets.empty() || std::ranges::find(targets, watch.target) != targets.end();
  };
  Wakes wakes;
  switch (change.target_change_type()) {
    case Change::CURRENT:
      for (auto& [document, watch] : watches_) {
        if (!is_about(watch)) continue;
        watch.in_force = true;
        has_told_ = true;
        for (const auto& wake_up : std::exchange(watch.waiting_to_be_in_force, {})) wake_up->wake();
      }
      break;
    case Change::RESET:
      // What happened before it is told again, need not be told.
      for (auto& [document, watch] : watches_) {
        if (!is_about(watch)) continue;
        watch.told_gone = false;
        add_wakes(watch, wakes);
      }
      break;
    case Change::REMOVE:
      // Not at our request: those are about targets that are forgotten already.
      if (change.has_cause()) {
        const grpc::Status cause(static_cast<grpc::StatusCode>(change.cause().code()), change.cause().message());
        failure_ = read_error(cause);
      }
      for (auto watch = watches_.begin(); watch != watches_.end();) {
        if (is_about(watch->second)) {
          give_up(watch->second, wakes);
          watch = watches_.erase(watch);
        } else {
          ++watch;
        }
      }
      break;
    default:
      break;
  }
  return wakes;
}

void Listener::told(const std::string& document, const std::optional<std::string>& holder) {
  Wakes wakes;
  {
    const std::lock_guard lock(mutex_);
    const auto found = watches_.find(document);
    if (found == watches_.end()) return;
    auto& watch = found->second;
    watch.told_gone = !holder;
    // Where locks change hands quickly, it may never be told that one is gone: a holder after another tells it, too.
    const bool changed_hands = holder && watch.holder && *holder != *watch.holder;
    if (holder) watch.holder = holder;
    if (holder && !changed_hands) return;
    watch.told_gone_at = std::chrono::steady_clock::now();
    add_wakes(watch, wakes);
  }
  for (const auto& wake : wakes) wake();
}

// How many of a target's documents there are: of one, none is how a deletion may be told.
void Listener::counted(const wire::ExistenceFilter& filter) {
  std::string document;
  {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::ranges::find_if(watches_, [&](const auto& entry) { return entry.second.target == filter.target_id(); });
    if (found == watches_.end()) return;
    document = found->first;
  }
  if (filter.count() == 0) told(document, {});
}

Listener::Told Listener::last_told(const std::string& document) {
  const std::lock_guard lock(mutex_);
  const auto found = watches_.find(document);
  if (found == watches_.end()) return Told::nothing;
  if (std::chrono::steady_clock::now() - found->second.told_gone_at < core::reservation_time) return Told::gone_just;
  return found->second.told_gone ? Told::gone : Told::nothing;
}

void Listener::ended(const Stream* stream, const grpc::Status& status, End end) {
  Wakes wakes;
  {
    const std::lock_guard lock(mutex_);
    if (stream_.get() != stream) return;
    const auto now = std::chrono::steady_clock::now();
    const bool was_of_use = now - stream_->opened_at >= lasting || (end == End::by_silence && has_told_);
    short_streams_ = was_of_use ? 0 : short_streams_ + 1;
    // One that is cut for the first time is opened again at once.
    if (short_streams_ > 1) {
      const int doublings = std::min(short_streams_, most_doublings);
      next_stream_at_ = now + core::retry_delay(pauses, doublings + 1, core::random_fraction());
    }
    stream_.reset();
    if (!status.ok()) failure_ = closed_ ? LockError(ErrorCode::aborted, "the client is closed") : read_error(status);
    for (auto& [document, watch] : std::exchange(watches_, {})) give_up(watch, wakes);
  }
  for (const auto& wake : wakes) wake();
}

// Under the mutex.
void Listener::give_up(const Watch& watch, Wakes& wakes) {
  for (const auto& wake_up : watch.waiting_to_be_in_force) wake_up->wake();
  // Who is not told of changes yet has nothing to fear for: its join fails, and that is all.
  if (watch.in_force) add_wakes(watch, wakes);
}

void Listener::add_wakes(const Watch& watch, Wakes& wakes) {
  for (const auto& [waiter, wake] : watch.waiters) wakes.push_back(wake);
}

asio::awaitable<void> Listener::close(CallLimits limits) {
  std::shared_ptr<Stream> stream;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    stream = stream_;
  }
  if (!stream) co_return;
  stream->cancel();
  co_await stream->over->wait(limits.deadline, limits.stop);
}

}  // namespace syncguard::firestore
