#include "backends/redis/wake_listener.hpp"

#include "backends/redis/errors.hpp"
#include "backends/redis/protocol.hpp"
#include "core/durations.hpp"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace syncguard::redis {
namespace {

// Around the number of the database in the channel of a key, see Redis's documentation of keyspace notifications.
constexpr std::string_view keyspace = "__keyspace@";
constexpr std::string_view keyspace_end = "__:";

constexpr std::hash<std::string_view> hash;

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

std::string WakeListener::key_channel(std::string_view lock_name) const {
  std::string channel(keyspace);
  channel += std::to_string(options_->database);
  channel += keyspace_end;
  return channel += lock_name;
}

void WakeListener::add(const asio::any_io_executor& executor, const LockId& waiter, const std::string& lock_name,
                       std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  if (!executor_) executor_ = executor;
  if (!waiters_.add(waiter, std::move(wake), lock_name)) return;
  by_channel_.emplace(hash(names_.wake_channel(waiter)), waiter);
  ++watched_[lock_name].waiters;
}

asio::awaitable<void> WakeListener::subscribe(LockId waiter, std::string lock_name, CallLimits limits) {
  // The key's channel is useful only if the server reports keyspace events, and the user may lack permission for it. So
  // its reply is not awaited.
  const auto watch_key = [&] {
    const std::lock_guard lock(mutex_);
    return !watched_.contains(lock_name) ||
           connection_->send_without_reply(subscription("SUBSCRIBE", key_channel(lock_name)));
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
  const auto lock_name = waiters_.remove(waiter);
  if (!lock_name) return;
  const auto wake_channel = names_.wake_channel(waiter);
  const auto [first, last] = by_channel_.equal_range(hash(wake_channel));
  const auto own = std::find_if(first, last, [&](const auto& entry) { return entry.second == waiter; });
  if (own != last) by_channel_.erase(own);
  connection_->send_without_reply(subscription("UNSUBSCRIBE", wake_channel));
  const auto watched = watched_.find(*lock_name);
  if (--watched->second.waiters == 0) {
    connection_->send_without_reply(subscription("UNSUBSCRIBE", key_channel(*lock_name)));
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
  if (channel.starts_with(keyspace)) {
    const auto end = channel.find(keyspace_end);
    if (end != std::string::npos) key_changed(channel.substr(end + keyspace_end.size()), message.elements[2].text);
    return;
  }
  std::vector<LockId> waiters;
  {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = by_channel_.equal_range(hash(channel));
    std::transform(first, last, std::back_inserter(waiters), [](const auto& entry) { return entry.second; });
  }
  for (const auto& waiter : waiters) waiters_.wake(waiter);
}

// A release by this library wakes one waiter, which soon takes the lock, so the others need not try. A key that became
// free therefore wakes all waiters only if it stays free for a while.
void WakeListener::key_changed(const std::string& lock_name, std::string_view event) {
  const bool became_free = event == "del" || event == "expired" || event == "evicted";
  const std::lock_guard lock(mutex_);
  const auto found = watched_.find(lock_name);
  if (found == watched_.end()) return;
  auto& timer = found->second.timer;
  if (!became_free) {
    timer.reset();
    return;
  }
  if (!timer) timer = std::make_unique<asio::steady_timer>(*executor_);
  timer->expires_after(core::random_between(std::chrono::microseconds(10'000), std::chrono::microseconds(30'000)));
  timer->async_wait([weak = weak_from_this(), lock_name](const asio::error_code& canceled) {
    if (canceled) return;
    if (const auto self = weak.lock()) self->waiters_.wake_topic(lock_name);
  });
}

}  // namespace syncguard::redis
