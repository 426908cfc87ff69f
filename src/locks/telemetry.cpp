#include <syncguard/backend.hpp>
#include <syncguard/telemetry.hpp>

#include "async/callback_threads.hpp"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <utility>

namespace syncguard {
namespace {

using std::chrono::steady_clock;

bool contains_ignoring_case(std::string_view text, std::string_view part) {
  const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

EventReason reason_of(Missing missing) {
  return missing == Missing::expired ? EventReason::expired : EventReason::not_found;
}

// Delivers events from a thread of its own. Hashing and the caller's predicates run there too, off the operation's
// path.
class EventQueue {
 public:
  explicit EventQueue(TelemetryOptions options)
      : delivery_(std::make_shared<Delivery>(std::move(options))), thread_("syncguard-event", 1) {}

  // Never blocks, never throws.
  void push(LockEvent event) noexcept {
    try {
      auto deliver = [delivery = delivery_, event = std::move(event)]() mutable { delivery->deliver(event); };
      if (thread_.post(std::move(deliver), delivery_->options.queue_capacity)) return;
    } catch (...) {  // NOLINT(bugprone-empty-catch): counted below like any other event that found no room
    }
    delivery_->dropped.fetch_add(1, std::memory_order_relaxed);
  }

  asio::awaitable<void> close(steady_clock::time_point until) {
    co_await thread_.idle(until);
    thread_.finish(async::CallbackThreads::Leftover::drop);
  }

 private:
  struct Delivery {
    explicit Delivery(TelemetryOptions chosen) : options(std::move(chosen)) {}

    void deliver(LockEvent& event) {
      if (!event.key.empty()) event.key_hash = hash_key(event.key);
      if (!event.lock_id.empty()) event.lock_id_hash = hash_key(event.lock_id);
      if (!raw_allowed(event)) {
        event.key.clear();
        event.lock_id.clear();
      }
      event.dropped_before = dropped.exchange(0, std::memory_order_relaxed);
      options.on_event(event);
    }

    [[nodiscard]] bool raw_allowed(const LockEvent& event) const {
      if (event.key.empty()) return false;
      if (std::ranges::any_of(options.deny_list,
                              [&](const auto& denied) { return contains_ignoring_case(event.key, denied); })) {
        return false;
      }
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

class TelemetryBackend : public Backend {
 public:
  TelemetryBackend(std::unique_ptr<Backend> inner, TelemetryOptions options)
      : inner_(std::move(inner)), events_(std::move(options)) {}

  [[nodiscard]] Capabilities capabilities() const override { return inner_->capabilities(); }
  [[nodiscard]] std::optional<std::chrono::milliseconds> clock_skew() const noexcept override {
    return inner_->clock_skew();
  }

  asio::awaitable<AcquireReply> acquire(const AcquireRequest& request, const CallLimits& limits) override {
    auto judge = [](const AcquireReply& reply) {
      return std::holds_alternative<Granted>(reply) ? std::nullopt : std::optional(EventReason::locked);
    };
    co_return co_await reported(EventType::acquire, request.key.str(), request.lock_id.view(),
                                inner_->acquire(request, limits), judge);
  }

  asio::awaitable<ReleaseReply> release(const LockId& id, const CallLimits& limits) override {
    auto judge = [](const ReleaseReply& reply) { return missing_reason(reply); };
    co_return co_await reported(EventType::release, {}, id.view(), inner_->release(id, limits), judge);
  }

  asio::awaitable<ExtendReply> extend(const LockId& id, std::chrono::milliseconds ttl,
                                      const CallLimits& limits) override {
    auto judge = [](const ExtendReply& reply) { return missing_reason(reply); };
    co_return co_await reported(EventType::extend, {}, id.view(), inner_->extend(id, ttl, limits), judge);
  }

  asio::awaitable<bool> is_locked(const Key& key, const CallLimits& limits) override {
    auto judge = [](bool) { return std::optional<EventReason>(); };
    co_return co_await reported(EventType::is_locked, key.str(), {}, inner_->is_locked(key, limits), judge);
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const Key& key, const CallLimits& limits) override {
    auto judge = [](const std::optional<LockRecord>& record) { return absence_reason(record); };
    co_return co_await reported(EventType::lookup, key.str(), {}, inner_->lookup(key, limits), judge);
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const LockId& id, const CallLimits& limits) override {
    auto judge = [](const std::optional<LockRecord>& record) { return absence_reason(record); };
    co_return co_await reported(EventType::lookup, {}, id.view(), inner_->lookup(id, limits), judge);
  }

  asio::awaitable<void> retract(const AcquireRequest& request, const CallLimits& limits) override {
    co_await inner_->retract(request, limits);
  }

  asio::awaitable<std::unique_ptr<WaitTicket>> join(const Key& key, const LockId& waiter, std::function<void()> wake,
                                                    const CallLimits& limits) override {
    co_return co_await inner_->join(key, waiter, std::move(wake), limits);
  }

  asio::awaitable<std::vector<Finding>> diagnose(const CallLimits& limits) override {
    co_return co_await inner_->diagnose(limits);
  }

  asio::awaitable<std::string> setup(const CallLimits& limits) override { co_return co_await inner_->setup(limits); }

  asio::awaitable<void> close(const CallLimits& limits) override {
    co_await inner_->close(limits);
    co_await events_.close(limits.deadline);
  }

 private:
  template <typename Reply>
  static std::optional<EventReason> missing_reason(const Reply& reply) {
    const auto* missing = std::get_if<Missing>(&reply);
    return missing != nullptr ? std::optional(reason_of(*missing)) : std::nullopt;
  }

  // Expired and absent are not told apart by lookup.
  static std::optional<EventReason> absence_reason(const std::optional<LockRecord>& record) {
    return record ? std::nullopt : std::optional(EventReason::not_found);
  }

  // Runs one operation and reports it. judge gives the reason of a "no", or nothing for a "yes".
  template <typename Reply, typename Judge>
  asio::awaitable<Reply> reported(EventType type, std::string_view key, std::string_view lock_id,
                                  asio::awaitable<Reply> operation, Judge judge) {
    LockEvent event;
    event.type = type;
    event.key = key;
    event.lock_id = lock_id;
    std::optional<Reply> reply;
    std::exception_ptr failure;
    const auto start = steady_clock::now();
    try {
      reply = co_await std::move(operation);
      event.reason = judge(*reply);
      event.result = event.reason ? EventResult::fail : EventResult::ok;
    } catch (const LockError& error) {
      failure = std::current_exception();
      event.error = error.code();
    } catch (...) {
      failure = std::current_exception();
      event.error = ErrorCode::internal;  // which the client makes of it
    }
    if (failure) event.result = EventResult::error;
    event.duration = steady_clock::now() - start;
    event.clock_skew = inner_->clock_skew();
    events_.push(std::move(event));
    if (failure) std::rethrow_exception(failure);
    co_return std::move(*reply);
  }

  const std::unique_ptr<Backend> inner_;
  EventQueue events_;
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
  if (!options.on_event) throw LockError(ErrorCode::invalid_argument, "telemetry needs an on_event callback");
  if (options.queue_capacity == 0) {
    throw LockError(ErrorCode::invalid_argument, "telemetry needs a queue_capacity of at least 1");
  }
  return std::make_unique<TelemetryBackend>(std::move(backend), std::move(options));
}

}  // namespace syncguard
