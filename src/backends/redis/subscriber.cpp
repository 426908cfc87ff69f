#include "backends/redis/subscriber.hpp"

#include "backends/redis/command.hpp"
#include "backends/redis/server_error.hpp"
#include "core/random.hpp"

#include <asio/this_coro.hpp>

#include <algorithm>
#include <utility>

namespace syncguard::redis {
namespace {

std::string subscription(std::string_view command, std::string_view channel) {
  return format_command({command, channel});
}

}  // namespace

Subscriber::Subscriber(std::shared_ptr<const RedisOptions> options, std::shared_ptr<const Tls> tls, Log log,
                       const Names& names)
    : options_(std::move(options)), tls_(std::move(tls)), log_(std::move(log)), names_(names) {}

void Subscriber::start() {
  const auto weak = weak_from_this();
  Link::Events events{.message =
                          [weak](const Reply& message) {
                            if (const auto self = weak.lock()) self->told(message);
                          },
                      .lost =
                          [weak] {
                            // Nobody knows what they missed: all try, and join again.
                            if (const auto self = weak.lock()) self->waiters_.wake_everybody();
                          }};
  link_ = std::make_shared<Link>(options_, tls_, log_, std::move(events));
}

asio::awaitable<void> Subscriber::add(LockId waiter, std::string lock_name, std::function<void()> wake,
                                      CallLimits limits) {
  const auto executor = co_await asio::this_coro::executor;
  const auto key_channel = "__keyspace@" + std::to_string(options_->database) + "__:" + lock_name;
  {
    const std::lock_guard lock(mutex_);
    if (waiters_.add(waiter, std::move(wake), key_channel)) {
      ++watched_.try_emplace(key_channel, executor).first->second.waiters;
    }
  }
  // The key's channel is of use only where the server reports such events, and may be forbidden: nobody waits for its
  // reply.
  const auto watch_key = [&] {
    const std::lock_guard lock(mutex_);
    return !watched_.contains(key_channel) || link_->tell(subscription("SUBSCRIBE", key_channel));
  };
  const bool watches = watch_key();
  auto request = subscription("SUBSCRIBE", names_.wake_channel(waiter));
  const auto answer = co_await link_->call(std::move(request), limits);
  if (answer.reply.is_error()) throw server_error(answer.reply.text, Effect::none);
  if (!watches) watch_key();
}

void Subscriber::remove(const LockId& waiter) {
  // Told under the mutex, in the order in which it happens here.
  const std::lock_guard lock(mutex_);
  const auto key_channel = waiters_.remove(waiter);
  if (!key_channel) return;
  link_->tell(subscription("UNSUBSCRIBE", names_.wake_channel(waiter)));
  const auto watched = watched_.find(*key_channel);
  if (--watched->second.waiters == 0) {
    link_->tell(subscription("UNSUBSCRIBE", watched->first));
    watched_.erase(watched);
  }
}

void Subscriber::told(const Reply& message) {
  // message, channel, payload
  if (message.elements.size() != 3) return;
  const auto& channel = message.elements[1].text;
  if (channel.starts_with("__keyspace@")) return key_changed(channel, message.elements[2].text);
  const auto id = std::string_view(channel).substr(channel.size() - std::min(channel.size(), LockId::length));
  if (LockId::is_valid(id)) waiters_.wake(LockId(id));
}

// A release of ours tells one waiter, who soon takes the lock: the others need not try. So a key that became free wakes
// all only if it stays free for a while.
void Subscriber::key_changed(const std::string& channel, std::string_view event) {
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
  timer.async_wait([weak = weak_from_this(), channel](const asio::error_code& cancelled) {
    if (cancelled) return;
    if (const auto self = weak.lock()) self->waiters_.wake_all_of(channel);
  });
}

}  // namespace syncguard::redis
