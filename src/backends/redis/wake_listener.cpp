#include "backends/redis/wake_listener.hpp"

#include "async/spawn.hpp"
#include "backends/redis/errors.hpp"
#include "backends/redis/protocol.hpp"

#include <chrono>
#include <utility>

namespace syncguard::redis {
namespace {

// Around the number of the database in the channel of a key, see Redis's documentation of keyspace notifications.
constexpr std::string_view keyspace = "__keyspace@";
constexpr std::string_view keyspace_end = "__:";

std::string subscription(std::string_view command, std::string_view channel) {
  return format_command({command, channel});
}

}  // namespace

WakeListener::WakeListener(std::shared_ptr<const RedisOptions> options, std::shared_ptr<const Tls> tls, Log log,
                           const Names& names, std::shared_ptr<backends::LookLoop> looks)
    : options_(std::move(options)),
      tls_(std::move(tls)),
      log_(std::move(log)),
      names_(names),
      looks_(std::move(looks)) {}

void WakeListener::start() {
  const auto weak = weak_from_this();
  Connection::Events events{.message =
                                [weak](const Reply& message) {
                                  if (const auto self = weak.lock()) self->on_message(message);
                                },
                            .lost =
                                [weak] {
                                  if (const auto self = weak.lock()) self->on_lost();
                                }};
  connection_ = std::make_shared<Connection>(options_, tls_, log_, std::move(events));
}

std::string WakeListener::key_channel(std::string_view lock_name) const {
  std::string channel(keyspace);
  channel += std::to_string(options_->database);
  channel += keyspace_end;
  return channel += lock_name;
}

void WakeListener::add(const LockId& waiter, const Key& key, std::function<void()> wake) {
  const auto lock_name = names_.lock(key);
  const std::lock_guard lock(mutex_);
  const bool is_new = looks_->waiters().add(
      waiter, {.key = key, .wake = std::move(wake), .name = names_.wake_channel(waiter), .topic = lock_name});
  if (is_new) ++watched_[lock_name];
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
  const auto lost_connections = [&] {
    const std::lock_guard lock(mutex_);
    return lost_connections_;
  };
  const auto lost_before = lost_connections();
  auto request = subscription("SUBSCRIBE", names_.wake_channel(waiter));
  const auto answer = co_await connection_->call(std::move(request), limits);
  if (answer.reply.is_error()) throw server_error(answer.reply.text, Effect::none);
  if (!watches) watch_key();
  const std::lock_guard lock(mutex_);
  if (!looks_->waiters().contains(waiter)) {
    connection_->send_without_reply(subscription("UNSUBSCRIBE", names_.wake_channel(waiter)));
  } else if (lost_connections_ == lost_before) {
    subscribed_.insert(waiter);
  }
}

void WakeListener::renew_subscriptions(const asio::any_io_executor& executor,
                                       std::vector<backends::Waiters::Look> waiters) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(waiters, [&](const auto& waiter) { return subscribed_.contains(waiter.id); });
    if (waiters.empty() || std::exchange(is_renewing_, true)) return;
  }
  async::spawn_on(executor, subscribe_again(std::move(waiters)), shared_from_this());
}

asio::awaitable<void> WakeListener::subscribe_again(std::vector<backends::Waiters::Look> waiters) {
  try {
    // The first one connects. The others need not wait for their replies.
    const auto& first = waiters.front();
    const CallLimits limits{{}, std::chrono::steady_clock::now() + options_->operation_timeout};
    co_await subscribe(first.id, names_.lock(first.key), limits);
  } catch (const LockError& error) {
    // Not reported: waiters that cannot be woken still look.
    log_.debug(std::string("subscribing again failed: ") + error.what());
    waiters.clear();
  }
  const std::lock_guard lock(mutex_);
  is_renewing_ = false;
  for (const auto& [id, key, reservation, place] : waiters) {
    if (!looks_->waiters().contains(id)) continue;
    if (connection_->send_without_reply(subscription("SUBSCRIBE", key_channel(names_.lock(key)))) &&
        connection_->send_without_reply(subscription("SUBSCRIBE", names_.wake_channel(id)))) {
      subscribed_.insert(id);
    }
  }
}

void WakeListener::remove(const LockId& waiter, const Key& key) {
  // Sent under the mutex, so that the server gets subscriptions and unsubscriptions in the order of these calls.
  const std::lock_guard lock(mutex_);
  if (!looks_->waiters().remove(waiter)) return;
  subscribed_.erase(waiter);
  connection_->send_without_reply(subscription("UNSUBSCRIBE", names_.wake_channel(waiter)));
  const auto watched = watched_.find(names_.lock(key));
  if (--watched->second > 0) return;
  connection_->send_without_reply(subscription("UNSUBSCRIBE", key_channel(watched->first)));
  watched_.erase(watched);
}

void WakeListener::client_moved_to(const Address& address) {
  follow(address);
  {
    const std::lock_guard lock(mutex_);
    if (client_address_ == address) return;
    client_address_ = address;
  }
  looks_->waiters().wake_all();
}

// Messages may have been missed, and entries are taken for dead until their waiters have subscribed again. Looks notice
// the one and do the other, and they go on until there is a server again.
void WakeListener::on_lost() {
  {
    const std::lock_guard lock(mutex_);
    ++lost_connections_;
    subscribed_.clear();
  }
  looks_->waiters().look_now();
}

void WakeListener::on_message(const Reply& message) {
  // message, channel, payload
  if (message.elements.size() != 3) return;
  const auto& channel = message.elements[1].text;
  if (!channel.starts_with(keyspace)) return looks_->waiters().wake_named(channel);
  // A release by this library wakes one waiter, which soon takes the lock. So the others do not look at once, and not
  // at all if the key was taken in the meantime.
  const auto& event = message.elements[2].text;
  const auto end = channel.find(keyspace_end);
  const bool became_free = event == "del" || event == "expired" || event == "evicted";
  if (end == std::string::npos || !(became_free || event == "set")) return;
  constexpr std::chrono::hours only_regularly{1};
  looks_->waiters().look_at_topic(std::string_view(channel).substr(end + keyspace_end.size()),
                                  became_free ? std::chrono::milliseconds(0) : only_regularly);
}

}  // namespace syncguard::redis
