#include "locks/client.hpp"
#include "locks/lease_state.hpp"

#include <syncguard/async.hpp>
#include <syncguard/registry.hpp>

#include <exception>
#include <string>
#include <system_error>
#include <utility>

namespace syncguard {
namespace {

using detail::LocksAccess;

Locks make_locks(std::unique_ptr<Backend> backend, ClientOptions options,
                 std::optional<asio::any_io_executor> executor) {
  if (!backend) throw LockError(ErrorCode::invalid_argument, "there is no backend");
  if (options.telemetry) backend = with_telemetry(std::move(backend), *std::exchange(options.telemetry, {}));
  auto callbacks = std::make_shared<const Callbacks>(options.callbacks);
  try {
    auto client = std::make_shared<detail::Client>(std::move(backend), std::move(options), std::move(executor));
    return LocksAccess::make(std::make_shared<detail::ClientHandle>(std::move(client)), std::move(callbacks));
  } catch (const std::system_error& error) {
    throw LockError(ErrorCode::internal,
                    std::string("the system has no thread or descriptor left for a client: ") + error.what(),
                    Effect::none, {.cause = std::current_exception()});
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

Locks::Locks(std::shared_ptr<detail::ClientHandle> handle, std::shared_ptr<const Callbacks> callbacks)
    : handle_(std::move(handle)), callbacks_(std::move(callbacks)) {}

Locks Locks::with(Callbacks callbacks) const {
  return {handle_, std::make_shared<const Callbacks>(std::move(callbacks))};
}

void Locks::close() { handle_->close(); }

std::optional<Lease> Locks::try_acquire(const Key& key, TryOptions options, std::stop_token stop) {
  const auto& client = handle_->client();
  return client->block_on("async_try_acquire",
                          [&] { return detail::try_acquire(client, callbacks_, key, options, std::move(stop)); });
}

Lease Locks::acquire(const Key& key, AcquireOptions options, std::stop_token stop) {
  const auto& client = handle_->client();
  const auto wait_stop = detail::take_wait_stop(options);
  return client->block_on(
      "async_acquire", [&] { return detail::acquire(client, callbacks_, key, options, std::move(stop), wait_stop); });
}

bool Locks::release(const LockId& id, std::stop_token stop) {
  const auto& client = handle_->client();
  return client->block_on("async_release", [&] { return detail::release(client, id, std::move(stop)); });
}

std::optional<Timestamp> Locks::extend(const LockId& id, std::chrono::milliseconds ttl, std::stop_token stop) {
  const auto& client = handle_->client();
  return client->block_on("async_extend", [&] { return detail::extend(client, id, ttl, std::move(stop)); });
}

bool Locks::is_locked(const Key& key, std::stop_token stop) {
  const auto& client = handle_->client();
  return client->block_on("async_is_locked", [&] { return detail::is_locked(client, key, std::move(stop)); });
}

std::optional<LockInfo> Locks::lookup(const Key& key, std::stop_token stop) {
  const auto& client = handle_->client();
  return client->block_on("async_lookup", [&] { return detail::lookup(client, key, std::move(stop)); });
}

std::optional<LockInfo> Locks::lookup(const LockId& id, std::stop_token stop) {
  const auto& client = handle_->client();
  return client->block_on("async_lookup", [&] { return detail::lookup(client, id, std::move(stop)); });
}

std::optional<LockInfo> Locks::get_by_key(const Key& key, std::stop_token stop) { return lookup(key, std::move(stop)); }

std::optional<LockInfo> Locks::get_by_id(const LockId& id, std::stop_token stop) { return lookup(id, std::move(stop)); }

bool Locks::owns(const LockId& id, std::stop_token stop) {
  const auto& client = handle_->client();
  return client->block_on("async_owns", [&] { return detail::owns(client, id, std::move(stop)); });
}

std::optional<LockRecord> Locks::get_by_key_raw(const Key& key, std::stop_token stop) {
  const auto& client = handle_->client();
  return client->block_on("async_get_by_key_raw", [&] { return detail::lookup_raw(client, key, std::move(stop)); });
}

std::optional<LockRecord> Locks::get_by_id_raw(const LockId& id, std::stop_token stop) {
  const auto& client = handle_->client();
  return client->block_on("async_get_by_id_raw", [&] { return detail::lookup_raw(client, id, std::move(stop)); });
}

std::optional<std::chrono::milliseconds> Locks::clock_skew() const noexcept {
  return handle_->client()->backend().clock_skew();
}

std::vector<Finding> Locks::diagnose(std::stop_token stop) {
  const auto& client = handle_->client();
  return client->block_on("async_diagnose", [&] { return detail::diagnose(client, std::move(stop)); });
}

std::string Locks::setup(std::stop_token stop) {
  const auto& client = handle_->client();
  return client->block_on("async_setup", [&] { return detail::setup(client, std::move(stop)); });
}

}  // namespace syncguard
