#include <syncguard/forwarding_backend.hpp>
#include <syncguard/telemetry.hpp>

#include "async/callback_threads.hpp"
#include "core/durations.hpp"
#include "locks/outcome.hpp"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

namespace syncguard {
inline namespace v0_1 {
namespace {

using std::chrono::steady_clock;

bool contains_ignoring_case(std::string_view text, std::string_view part) {
  const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

bool matches_deny_list(const TelemetryOptions& options, std::string_view key) {
  return std::ranges::any_of(options.deny_list,
                             [&](const auto& denied) { return contains_ignoring_case(key, denied); });
}

// The lock ids of keys on the deny list. Release and extend only get an id, and must not reveal it either. Thread-safe.
class DeniedIds {
 public:
  // Must be called before the id is used. The id is remembered until it is removed or has certainly expired.
  void add(const LockId& id, std::chrono::milliseconds ttl) {
    const std::lock_guard lock(mutex_);
    const auto now = steady_clock::now();
    if (ids_.size() >= prune_at_) {
      std::erase_if(ids_, [&](const auto& entry) { return entry.second < now; });
      prune_at_ = std::max(min_pruned, 2 * ids_.size());
    }
    ids_.insert_or_assign(id, end_of(now, ttl));
  }
  // The lock of this id was extended. Returns whether the id is denied.
  bool extend(const LockId& id, std::chrono::milliseconds ttl) {
    const std::lock_guard lock(mutex_);
    const auto found = ids_.find(id);
    if (found == ids_.end()) return false;
    found->second = std::max(found->second, end_of(steady_clock::now(), ttl));
    return true;
  }
  [[nodiscard]] bool contains(const LockId& id) const {
    const std::lock_guard lock(mutex_);
    return ids_.contains(id);
  }
  void remove(const LockId& id) {
    const std::lock_guard lock(mutex_);
    ids_.erase(id);
  }

 private:
  static constexpr std::size_t min_pruned = 64;

  // After this time, no request of this client can still be about the lock.
  static steady_clock::time_point end_of(steady_clock::time_point now, std::chrono::milliseconds ttl) {
    return now + core::bounded(ttl) + std::chrono::minutes(1);
  }

  mutable std::mutex mutex_;
  std::unordered_map<LockId, steady_clock::time_point> ids_;
  std::size_t prune_at_ = min_pruned;
};

bool is_lease_event(EventType type) { return type >= EventType::waited; }

// Whether an event may carry raw identifiers.
enum class Raw { if_allowed, never };

// Delivers events on a dedicated thread. Hashing and the caller's predicates run there, too, off the operation's path.
class EventQueue {
 public:
  explicit EventQueue(TelemetryOptions options)
      : delivery_(std::make_shared<Delivery>(std::move(options))),
        thread_("syncguard-event", async::CallbackThreads::Growth::none) {}

  [[nodiscard]] bool accepts(EventType type) const noexcept { return bool(delivery_->callback_for(type)); }

  // Never blocks, never throws. The queue must accept this type.
  void push(LockEvent event, Raw raw) noexcept {
    try {
      auto deliver = [delivery = delivery_, event = std::move(event), raw]() mutable { delivery->deliver(event, raw); };
      const auto posted = thread_.post(std::move(deliver), delivery_->options.queue_capacity);
      if (posted == async::CallbackThreads::Posted::queued) return;
    } catch (...) {  // NOLINT(bugprone-empty-catch): counted below like any other dropped event
    }
    count_dropped();
  }
  void count_dropped() noexcept { delivery_->dropped.fetch_add(1, std::memory_order_relaxed); }

  [[nodiscard]] const TelemetryOptions& options() const noexcept { return delivery_->options; }

  asio::awaitable<void> close(steady_clock::time_point until) {
    co_await thread_.idle(until);
    thread_.finish(async::CallbackThreads::QueuedFunctions::drop);
  }

 private:
  struct Delivery {
    explicit Delivery(TelemetryOptions chosen) : options(std::move(chosen)) {}

    void deliver(LockEvent& event, Raw raw) {
      if (!event.key.empty()) event.key_hash = hash_key(event.key);
      if (!event.lock_id.empty()) event.lock_id_hash = hash_key(event.lock_id);
      if (raw == Raw::never || !raw_allowed(event)) {
        event.key.clear();
        event.lock_id.clear();
      }
      event.dropped_before = dropped.exchange(0, std::memory_order_relaxed);
      callback_for(event.type)(event);
    }

    [[nodiscard]] const std::function<void(const LockEvent&)>& callback_for(EventType type) const noexcept {
      return is_lease_event(type) ? options.on_lease_event : options.on_event;
    }

    [[nodiscard]] bool raw_allowed(const LockEvent& event) const {
      if (matches_deny_list(options, event.key)) return false;
      try {
        return options.include_raw(event);
      } catch (...) {
        return false;
      }
    }

    const TelemetryOptions options;
    std::atomic<std::uint64_t> dropped{0};
  };

  const std::shared_ptr<Delivery> delivery_;
  async::CallbackThreads thread_;
};

class TelemetryBackend : public ForwardingBackend, public detail::LeaseObserver {
 public:
  TelemetryBackend(std::unique_ptr<Backend> backend, TelemetryOptions options)
      : ForwardingBackend(std::move(backend)),
        inner_observer_(detail::lease_observer_of(inner())),
        events_(std::move(options)) {}

  void observe(const detail::LeaseEvent& lease_event) noexcept override {
    if (inner_observer_ != nullptr) inner_observer_->observe(lease_event);
    if (!events_.accepts(lease_event.type)) return;
    const auto& [type, outcome, duration, key, lock_id] = lease_event;
    try {
      LockEvent event;
      event.type = type;
      event.result = outcome.result;
      event.reason = outcome.reason;
      event.error = outcome.error;
      event.duration = duration;
      event.key = key;
      event.lock_id = lock_id;
      events_.push(std::move(event), Raw::if_allowed);
    } catch (const std::bad_alloc&) {
      events_.count_dropped();
    }
  }

  asio::awaitable<AcquireReply> acquire(const AcquireRequest& request, const CallLimits& limits) override {
    // Added before the request, which may take effect even if its reply is lost.
    const bool denied = matches_deny_list(events_.options(), request.key.str());
    if (denied) denied_ids_.add(request.lock_id, request.ttl);
    auto reply = co_await reported(EventType::acquire, request.key.str(), request.lock_id.view(),
                                   denied ? Raw::never : Raw::if_allowed, inner().acquire(request, limits));
    if (denied && std::holds_alternative<Contended>(reply)) denied_ids_.remove(request.lock_id);
    co_return reply;
  }

  asio::awaitable<ReleaseReply> release(const LockId& id, const CallLimits& limits) override {
    auto reply = co_await reported(EventType::release, {}, id.view(), raw_of(id), inner().release(id, limits));
    denied_ids_.remove(id);
    co_return reply;
  }

  asio::awaitable<ExtendReply> extend(const LockId& id, std::chrono::milliseconds ttl,
                                      const CallLimits& limits) override {
    const Raw raw = denied_ids_.extend(id, ttl) ? Raw::never : Raw::if_allowed;
    co_return co_await reported(EventType::extend, {}, id.view(), raw, inner().extend(id, ttl, limits));
  }

  asio::awaitable<bool> is_locked(const Key& key, const CallLimits& limits) override {
    const auto add_answer = [](bool locked, LockEvent& event) { event.locked = locked; };
    co_return co_await reported(EventType::is_locked, key.str(), {}, Raw::if_allowed, inner().is_locked(key, limits),
                                add_answer);
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const Key& key, const CallLimits& limits) override {
    co_return co_await reported(EventType::lookup, key.str(), {}, Raw::if_allowed, inner().lookup(key, limits));
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const LockId& id, const CallLimits& limits) override {
    // The record reveals the key of the id, regardless of which client acquired it.
    auto raw = raw_of(id);
    auto check_key = [&](const std::optional<LockRecord>& record, LockEvent& /*event*/) {
      if (!record || !matches_deny_list(events_.options(), record->key.str())) return;
      raw = Raw::never;
      // The lock may be adopted next. The record does not say for how long it is held; extending it adds its ttl.
      if (!denied_ids_.extend(id, {})) denied_ids_.add(id, {});
    };
    co_return co_await reported(EventType::lookup, {}, id.view(), raw, inner().lookup(id, limits), check_key);
  }

  asio::awaitable<void> close(const CallLimits& limits) override {
    co_await inner().close(limits);
    co_await events_.close(limits.deadline);
  }

 private:
  [[nodiscard]] Raw raw_of(const LockId& id) const { return denied_ids_.contains(id) ? Raw::never : Raw::if_allowed; }

  struct Ignore {
    template <typename Reply>
    void operator()(const Reply& /*reply*/, LockEvent& /*event*/) const noexcept {}
  };

  // Runs one operation and reports it. on_reply may add to the event. raw is a reference because on_reply may change
  // it.
  template <typename Reply, typename OnReply = Ignore>
  asio::awaitable<Reply> reported(EventType type, std::string_view key, std::string_view lock_id, const Raw& raw,
                                  asio::awaitable<Reply> operation, OnReply on_reply = {}) {
    if (!events_.accepts(type)) co_return co_await std::move(operation);
    LockEvent event;
    event.type = type;
    event.key = key;
    event.lock_id = lock_id;
    std::optional<Reply> reply;
    std::exception_ptr failure;
    const auto start = steady_clock::now();
    try {
      reply = co_await std::move(operation);
      on_reply(*reply, event);
      const auto outcome = detail::outcome_of(*reply);
      event.reason = outcome.reason;
      event.result = outcome.result;
    } catch (const LockError& error) {
      failure = std::current_exception();
      event.error = error.code();
    } catch (...) {
      failure = std::current_exception();
      event.error = ErrorCode::internal;  // as in Client::checked
    }
    if (failure) event.result = EventResult::error;
    event.duration = steady_clock::now() - start;
    event.clock_skew = inner().clock_skew();
    events_.push(std::move(event), raw);
    if (failure) std::rethrow_exception(failure);
    co_return std::move(*reply);
  }

  detail::LeaseObserver* const inner_observer_;
  EventQueue events_;
  DeniedIds denied_ids_;
};

}  // namespace

std::string_view to_string(EventType type) noexcept {
  switch (type) {
    case EventType::acquire:
      return "acquire";
    case EventType::release:
      return "release";
    case EventType::extend:
      return "extend";
    case EventType::is_locked:
      return "isLocked";
    case EventType::lookup:
      return "lookup";
    case EventType::waited:
      return "waited";
    case EventType::renewed:
      return "renewed";
    case EventType::lost:
      return "lost";
    case EventType::held:
      return "held";
  }
  return "";
}

std::string_view to_string(EventResult result) noexcept {
  switch (result) {
    case EventResult::ok:
      return "ok";
    case EventResult::fail:
      return "fail";
    case EventResult::error:
      return "error";
  }
  return "";
}

std::string_view to_string(EventReason reason) noexcept {
  switch (reason) {
    case EventReason::locked:
      return "locked";
    case EventReason::expired:
      return "expired";
    case EventReason::not_found:
      return "not-found";
  }
  return "";
}

std::unique_ptr<Backend> with_telemetry(std::unique_ptr<Backend> backend, TelemetryOptions options) {
  if (!options.on_event && !options.on_lease_event) {
    throw LockError(ErrorCode::invalid_argument, "telemetry needs an on_event or on_lease_event callback");
  }
  if (options.queue_capacity == 0) {
    throw LockError(ErrorCode::invalid_argument, "telemetry needs a queue_capacity of at least 1");
  }
  return std::make_unique<TelemetryBackend>(std::move(backend), std::move(options));
}

}  // namespace v0_1
}  // namespace syncguard
