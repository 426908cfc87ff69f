#include "backends/redis/wake_listener.hpp"

#include "backends/redis/errors.hpp"
#include "backends/redis/protocol.hpp"
#include "core/durations.hpp"

#include <asio/this_coro.hpp>

#include <utility>

namespace syncguard::redis {
namespace {

std::string subscription(std::string_view command, std::string_view channel) {
  return format_command({command, channel});
}

}  // namespace

WakeListener::WakeListener(std::shared_ptr<const RedisOptions> options, std::shared_ptr<const Tls> tls, Log log,
                           const Names& names)
    : options_(std::move(options)), tls_(std::move(tls)), log_(std::move(log)), names_(names) {}

void WakeListener::start() {
  const auto weak = weak_from_this();
  Connection::Events events{.message =
                                [weak](const Reply& message) {
                                  if (const auto self = weak.lock()) self->on_message(message);
                                },
                            .lost =
                                [weak] {
                                  // Messages may have been missed, so all waiters try and join again.
                                  if (const auto self = weak.lock()) self->waiters_.wake_all();
                                }};
  connection_ = std::make_shared<Connection>(options_, tls_, log_, std::move(events));
}

asio::awaitable<void> WakeListener::add(LockId waiter, std::string lock_name, std::function<void()> wake,
                                        CallLimits limits) {
  const auto executor = co_await asio::this_coro::executor;
  const auto key_channel = "__keyspace@" + std::to_string(options_->database) + "__:" + lock_name;
  {
    const std::lock_guard lock(mutex_);
    if (waiters_.add(waiter, std::move(wake), key_channel)) {
      by_channel_.emplace(names_.wake_channel(waiter), waiter);
      ++watched_.try_emplace(key_channel, executor).first->second.waiters;
    }
  }
  // The key's channel is useful only if the server reports keyspace events, and the user may lack permission for it. So
  // its reply is not awaited.
  const auto watch_key = [&] {
    const std::lock_guard lock(mutex_);
    return !watched_.contains(key_channel) || connection_->send_without_reply(subscription("SUBSCRIBE", key_channel));
  };
  const bool watches = watch_key();
  auto request = subscription("SUBSCRIBE", names_.wake_channel(waiter));
  const auto answer = co_await connection_->call(std::move(request), limits);
  if (answer.reply.is_error()) throw server_error(answer.reply.text, Effect::none);
  if (!watches) watch_key();
}

void WakeListener::remove(const LockId& waiter) {
  // Sent under the mutex, so that the server gets subscriptions and unsubscriptions in the order of these calls.
  const std::lock_guard lock(mutex_);
  const auto key_channel = waiters_.remove(waiter);
  if (!key_channel) return;
  const auto wake_channel = names_.wake_channel(waiter);
  by_channel_.erase(wake_channel);
  connection_->send_without_reply(subscription("UNSUBSCRIBE", wake_channel));
  const auto watched = watched_.find(*key_channel);
  if (--watched->second.waiters == 0) {
    connection_->send_without_reply(subscription("UNSUBSCRIBE", watched->first));
    watched_.erase(watched);
  }
}

void WakeListener::client_moved_to(const Address& address) {
  follow(address);
  {
    const std::lock_guard lock(mutex_);
    if (client_address_ == address) return;
    client_address_ = address;
  }
  waiters_.wake_all();
}

void WakeListener::on_message(const Reply& message) {
  // message, channel, payload
  if (message.elements.size() != 3) return;
  const auto& channel = message.elements[1].text;
  if (channel.starts_with("__keyspace@")) return key_changed(channel, message.elements[2].text);
  std::optional<LockId> waiter;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = by_channel_.find(channel); found != by_channel_.end()) waiter = found->second;
  }
  if (waiter) waiters_.wake(*waiter);
}

// A release by this library wakes one waiter, which soon takes the lock, so the others need not try. A key that became
// free therefore wakes all waiters only if it stays free for a while.
void WakeListener::key_changed(const std::string& channel, std::string_view event) {
  const bool became_free = event == "del" || event == "expired" || event == "evicted";
  const std::lock_guard lock(mutex_);
  const auto found = watched_.find(channel);
  if (found == watched_.end()) return;
  auto& timer = found->second.timer;
  if (!became_free) {
    timer.cancel();
    return;
  }
  timer.expires_after(core::random_between(std::chrono::microseconds(10'000), std::chrono::microseconds(30'000)));
  timer.async_wait([weak = weak_from_this(), channel](const asio::error_code& canceled) {
    if (canceled) return;
    if (const auto self = weak.lock()) self->waiters_.wake_topic(channel);
  });
}

}  // namespace syncguard::redis
