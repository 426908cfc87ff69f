#include <syncguard/admin.hpp>

#include "locks/block.hpp"
#include "locks/client.hpp"

#include <utility>

namespace syncguard {
inline namespace v0_1 {

LockPage Admin::list(ListOptions options, std::stop_token stop) const {
  return detail::block(locks_.client_, detail::List(options), std::move(stop));
}

KeyState Admin::inspect(const Key& key, std::stop_token stop) const {
  return detail::block(locks_.client_, detail::Inspect{key}, std::move(stop));
}

void Admin::watch(const Key& key, WatchOptions options, const std::function<void(const KeyState&)>& callback,
                  std::stop_token stop) const {
  std::optional<KeyState> last;
  for (;;) {
    try {
      last = detail::block(locks_.client_, detail::NextChange{key, options, std::move(last)}, stop);
    } catch (const LockError& error) {
      if (error.code() == ErrorCode::aborted && stop.stop_requested()) return;
      throw;
    }
    callback(*last);
  }
}

bool Admin::break_lock(const Key& key, Fence fence, std::stop_token stop) const {
  return detail::block(locks_.client_, detail::BreakLock{key, fence}, std::move(stop));
}

Fence Admin::raise_fence(const Key& key, Fence fence, std::stop_token stop) const {
  return detail::block(locks_.client_, detail::RaiseFence{key, fence}, std::move(stop));
}

CleanupReply Admin::clean_up(CleanupRequest request, std::stop_token stop) const {
  return detail::block(locks_.client_, detail::CleanUp{request}, std::move(stop));
}

std::vector<Finding> Admin::diagnose(std::stop_token stop) const {
  return detail::block(locks_.client_, detail::Diagnose{}, std::move(stop));
}

std::string Admin::setup(std::stop_token stop) const {
  return detail::block(locks_.client_, detail::Setup{}, std::move(stop));
}

std::string Admin::setup_script() const { return locks_.client_->backend().setup_script(); }

std::optional<std::chrono::milliseconds> Admin::clock_skew() const noexcept {
  auto& client = *locks_.client_;
  return client.is_forked() ? std::nullopt : client.backend().clock_skew();
}

std::optional<LockInfo> Admin::get_by_key(const Key& key, std::stop_token stop) const {
  return locks_.lookup(key, std::move(stop));
}

std::optional<LockInfo> Admin::get_by_id(const LockId& id, std::stop_token stop) const {
  return locks_.lookup(id, std::move(stop));
}

bool Admin::owns(const LockId& id, std::stop_token stop) const {
  return detail::block(locks_.client_, detail::Owns{id}, std::move(stop));
}

std::optional<LockRecord> Admin::get_by_key_raw(const Key& key, std::stop_token stop) const {
  return detail::block(locks_.client_, detail::LookupRaw<Key>{key}, std::move(stop));
}

std::optional<LockRecord> Admin::get_by_id_raw(const LockId& id, std::stop_token stop) const {
  return detail::block(locks_.client_, detail::LookupRaw<LockId>{id}, std::move(stop));
}

}  // namespace v0_1
}  // namespace syncguard
