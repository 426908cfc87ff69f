#include "locks/block.hpp"
#include "locks/client.hpp"

#include <syncguard/admin.hpp>
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
  return detail::block(client_, detail::TryAcquire{callbacks_, key, options}, std::move(stop));
}

Lease Locks::acquire(const Key& key, AcquireOptions options, std::stop_token stop) const {
  return detail::block(client_, detail::Acquire{callbacks_, key, options}, std::move(stop));
}

TryResult Locks::adopt(const LockId& id, AdoptOptions options, std::stop_token stop) const {
  return detail::block(client_, detail::Adopt{callbacks_, id, options}, std::move(stop));
}

bool Locks::release(const LockId& id, std::stop_token stop) const {
  return detail::block(client_, detail::Release{id}, std::move(stop));
}

std::optional<Timestamp> Locks::extend(const LockId& id, std::chrono::milliseconds ttl, std::stop_token stop) const {
  return detail::block(client_, detail::Extend{id, ttl}, std::move(stop));
}

bool Locks::is_locked(const Key& key, std::stop_token stop) const {
  return detail::block(client_, detail::IsLocked{key}, std::move(stop));
}

std::optional<LockInfo> Locks::lookup(const Key& key, std::stop_token stop) const {
  return detail::block(client_, detail::Lookup<Key>{key}, std::move(stop));
}

std::optional<LockInfo> Locks::lookup(const LockId& id, std::stop_token stop) const {
  return detail::block(client_, detail::Lookup<LockId>{id}, std::move(stop));
}

Admin Locks::admin() const { return Admin(*this); }

Capabilities Locks::capabilities() const { return client_->backend().capabilities(); }

}  // namespace v0_1
}  // namespace syncguard
