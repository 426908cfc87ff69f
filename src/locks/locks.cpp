#include "locks/client.hpp"
#include "locks/lease_state.hpp"

#include <syncguard/async.hpp>
#include <syncguard/registry.hpp>

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <system_error>
#include <utility>

namespace syncguard {
inline namespace v0_1 {
namespace {

// One line for each operation: type, result, duration, and identifiers as hashes.
std::string described(const LockEvent& event) {
  char duration[32];
  std::snprintf(duration, sizeof duration, "%.1f ms",
                std::chrono::duration<double, std::milli>(event.duration).count());
  std::string text = std::string(to_string(event.type)) + ": " + std::string(to_string(event.result));
  if (event.reason) text += " (" + std::string(to_string(*event.reason)) + ")";
  if (event.error) text += " (" + std::string(to_string(*event.error)) + ")";
  if (event.locked) text += *event.locked ? " (locked)" : " (free)";
  text += std::string(" in ") + duration;
  if (!event.key_hash.empty()) text += ", key " + event.key_hash + " (hashed)";
  if (!event.lock_id_hash.empty()) text += ", lock id " + event.lock_id_hash + " (hashed)";
  if (event.dropped_before != 0) text += "; " + std::to_string(event.dropped_before) + " lines before it were dropped";
  return text;
}

Locks make_locks(std::unique_ptr<Backend> backend, ClientOptions options,
                 std::optional<asio::any_io_executor> executor) {
  if (!backend) throw LockError(ErrorCode::invalid_argument, "the backend must not be null");
  if (options.log.debugging()) {
    backend = with_telemetry(
        std::move(backend), {.on_event = [log = options.log](const LockEvent& event) { log.debug(described(event)); }});
  }
  if (options.telemetry) backend = with_telemetry(std::move(backend), *std::exchange(options.telemetry, {}));
  auto callbacks = std::make_shared<const Callbacks>(options.callbacks);
  try {
    auto client = detail::Client::make(std::move(backend), std::move(options), std::move(executor));
    return detail::make_locks(std::move(client), std::move(callbacks));
  } catch (const std::system_error& error) {
    throw LockError(ErrorCode::internal,
                    std::string("cannot create the threads or descriptors of a client: ") + error.what(), Effect::none,
                    {.cause = std::current_exception()});
  }
}

Locks open_url(std::string_view text, ClientOptions options, std::optional<asio::any_io_executor> executor) {
  BackendUrl url(text);
  if (const auto timeout = url.take_duration("operation_timeout")) options.operation_timeout = timeout;
  auto backend = make_backend(url, {.log = options.log, .operation_timeout = options.operation_timeout});
  return make_locks(std::move(backend), std::move(options), std::move(executor));
}

}  // namespace

Locks open(std::string_view url, ClientOptions options) { return open_url(url, std::move(options), std::nullopt); }

Locks open_on(asio::any_io_executor executor, std::string_view url, ClientOptions options) {
  return open_url(url, std::move(options), std::move(executor));
}

Locks open_on(asio::any_io_executor executor, std::unique_ptr<Backend> backend, ClientOptions options) {
  return make_locks(std::move(backend), std::move(options), std::move(executor));
}

Locks::Locks(std::unique_ptr<Backend> backend, ClientOptions options)
    : Locks(make_locks(std::move(backend), std::move(options), std::nullopt)) {}

Locks detail::make_locks(std::shared_ptr<Client> client, std::shared_ptr<const Callbacks> callbacks) {
  Locks locks;
  locks.keeps_open_ = client->kept_open();
  locks.client_ = std::move(client);
  locks.callbacks_ = std::move(callbacks);
  return locks;
}

Locks Locks::with(Callbacks callbacks) const {
  Locks copy = *this;
  copy.callbacks_ = std::make_shared<const Callbacks>(std::move(callbacks));
  return copy;
}

void Locks::close() const {
  client_->refuse_in_child();
  client_->close(detail::Client::Closing::wait);
}

TryResult Locks::try_acquire(const Key& key, TryOptions options, std::stop_token stop) const {
  auto lease = client_->block_on("async_try_acquire", std::move(stop), [&](auto caller) {
    return detail::try_acquire(client_, callbacks_, key, options, std::move(caller));
  });
  detail::LeaseAccess::deliver(lease);
  return lease;
}

Lease Locks::acquire(const Key& key, AcquireOptions options, std::stop_token stop) const {
  const auto wait_stop = detail::take_wait_stop(options);
  auto lease = client_->block_on("async_acquire", std::move(stop), [&](auto caller) {
    return detail::acquire(client_, callbacks_, key, options, std::move(caller), wait_stop);
  });
  detail::LeaseAccess::deliver(lease);
  return lease;
}

bool Locks::release(const LockId& id, std::stop_token stop) const {
  return client_->block_on("async_release", std::move(stop),
                           [&](auto caller) { return detail::release(client_, id, std::move(caller)); });
}

std::optional<Timestamp> Locks::extend(const LockId& id, std::chrono::milliseconds ttl, std::stop_token stop) const {
  return client_->block_on("async_extend", std::move(stop),
                           [&](auto caller) { return detail::extend(client_, id, ttl, std::move(caller)); });
}

bool Locks::is_locked(const Key& key, std::stop_token stop) const {
  return client_->block_on("async_is_locked", std::move(stop),
                           [&](auto caller) { return detail::is_locked(client_, key, std::move(caller)); });
}

std::optional<LockInfo> Locks::lookup(const Key& key, std::stop_token stop) const {
  return client_->block_on("async_lookup", std::move(stop),
                           [&](auto caller) { return detail::lookup(client_, key, std::move(caller)); });
}

std::optional<LockInfo> Locks::lookup(const LockId& id, std::stop_token stop) const {
  return client_->block_on("async_lookup", std::move(stop),
                           [&](auto caller) { return detail::lookup(client_, id, std::move(caller)); });
}

std::optional<LockInfo> Locks::get_by_key(const Key& key, std::stop_token stop) const {
  return lookup(key, std::move(stop));
}

std::optional<LockInfo> Locks::get_by_id(const LockId& id, std::stop_token stop) const {
  return lookup(id, std::move(stop));
}

bool Locks::owns(const LockId& id, std::stop_token stop) const {
  return client_->block_on("async_owns", std::move(stop),
                           [&](auto caller) { return detail::owns(client_, id, std::move(caller)); });
}

std::optional<LockRecord> Locks::get_by_key_raw(const Key& key, std::stop_token stop) const {
  return client_->block_on("async_get_by_key_raw", std::move(stop),
                           [&](auto caller) { return detail::lookup_raw(client_, key, std::move(caller)); });
}

std::optional<LockRecord> Locks::get_by_id_raw(const LockId& id, std::stop_token stop) const {
  return client_->block_on("async_get_by_id_raw", std::move(stop),
                           [&](auto caller) { return detail::lookup_raw(client_, id, std::move(caller)); });
}

Capabilities Locks::capabilities() const { return client_->backend().capabilities(); }

std::optional<std::chrono::milliseconds> Locks::clock_skew() const noexcept {
  auto& client = *client_;
  return client.is_forked() ? std::nullopt : client.backend().clock_skew();
}

std::vector<Finding> Locks::diagnose(std::stop_token stop) const {
  return client_->block_on("async_diagnose", std::move(stop),
                           [&](auto caller) { return detail::diagnose(client_, std::move(caller)); });
}

LockPage Locks::list(ListOptions options, std::stop_token stop) const {
  return client_->block_on("async_list", std::move(stop), [&](auto caller) {
    return detail::list(client_, std::string(options.prefix), options.limit, std::string(options.cursor),
                        std::move(caller));
  });
}

KeyState Locks::inspect(const Key& key, std::stop_token stop) const {
  return client_->block_on("async_inspect", std::move(stop),
                           [&](auto caller) { return detail::inspect(client_, key, std::move(caller)); });
}

void Locks::watch(const Key& key, const std::function<void(const KeyState&)>& callback, WatchOptions options,
                  std::stop_token stop) const {
  std::optional<KeyState> last;
  for (;;) {
    try {
      last = client_->block_on("async_watch", stop, [&](auto caller) {
        return detail::next_change(client_, key, last, options, std::move(caller));
      });
    } catch (const LockError& error) {
      if (error.code() == ErrorCode::aborted && stop.stop_requested()) return;
      throw;
    }
    callback(*last);
  }
}

bool Locks::break_lock(const Key& key, Fence fence, std::stop_token stop) const {
  return client_->block_on("async_break_lock", std::move(stop),
                           [&](auto caller) { return detail::break_lock(client_, key, fence, std::move(caller)); });
}

Fence Locks::fence(const Key& key, std::stop_token stop) const {
  return client_->block_on("async_fence", std::move(stop),
                           [&](auto caller) { return detail::fence(client_, key, std::move(caller)); });
}

Fence Locks::raise_fence(const Key& key, Fence fence, std::stop_token stop) const {
  return client_->block_on("async_raise_fence", std::move(stop),
                           [&](auto caller) { return detail::raise_fence(client_, key, fence, std::move(caller)); });
}

CleanupReply Locks::clean_up(CleanupRequest request, std::stop_token stop) const {
  return client_->block_on("async_clean_up", std::move(stop),
                           [&](auto caller) { return detail::clean_up(client_, request, std::move(caller)); });
}

std::string Locks::setup(std::stop_token stop) const {
  return client_->block_on("async_setup", std::move(stop),
                           [&](auto caller) { return detail::setup(client_, std::move(caller)); });
}

std::string Locks::setup_script() const { return client_->backend().setup_script(); }

}  // namespace v0_1
}  // namespace syncguard
