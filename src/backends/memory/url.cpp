#include "backends/url.hpp"

#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace syncguard::memory {
namespace {

std::shared_ptr<MemoryStore> named_store(const std::string& name) {
  static constinit std::mutex mutex;
  // Never destroyed, because fences must not repeat, not even while the process exits.
  static auto& stores = *new std::map<std::string, std::shared_ptr<MemoryStore>>;

  const std::lock_guard lock(mutex);
  auto& store = stores[name];
  if (!store) store = std::make_shared<MemoryStore>();
  return store;
}

}  // namespace

MemoryOptions options_of(BackendUrl& url) {
  MemoryOptions options;
  if (const auto name = BackendUrl::decode(url.rest()); !name.empty()) options.store = named_store(name);
  options.cleanup_in_is_locked = url.take_flag("cleanup_in_is_locked").value_or(options.cleanup_in_is_locked);
  return options;
}

std::unique_ptr<Backend> from_url(BackendUrl& url, const BackendContext& /*context*/) {
  return make_memory_backend(options_of(url));
}

}  // namespace syncguard::memory
