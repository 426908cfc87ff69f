#include <syncguard/registry.hpp>

#include "backends/url.hpp"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace syncguard {
inline namespace v0_1 {
namespace {

// A backend that comes with the library.
struct BuiltIn {
  std::vector<std::string> schemes;
  // Empty if this build does not include the backend. The members below then tell how to get it.
  BackendFactory factory;
  std::string name;
  std::string needs;
  std::string option;
};

// If the condition is false, the function is only declared, and the discarded branch does not need its definition.
#define SYNCGUARD_FACTORY_IF(condition, function)             \
  [] {                                                        \
    if constexpr (condition) return BackendFactory(function); \
    return BackendFactory();                                  \
  }()

// Like the registry below, never destroyed: static objects may open clients while the process exits.
const std::vector<BuiltIn>& built_in() {
  // To add a backend, add one entry here and a declaration in backends/url.hpp.
  static const auto& backends = *new std::vector<BuiltIn>{
      {{"firestore"},
       SYNCGUARD_FACTORY_IF(SYNCGUARD_HAS_FIRESTORE, firestore::from_url),
       "Firestore",
       "gRPC and protobuf (Debian: libgrpc++-dev, libprotobuf-dev, protobuf-compiler)",
       "SYNCGUARD_FIRESTORE"},
      {{"memory"}, memory::from_url, "in-memory", "", ""},
      {{"postgres", "postgresql"},
       SYNCGUARD_FACTORY_IF(SYNCGUARD_HAS_POSTGRES, postgres::from_url),
       "PostgreSQL",
       "libpq (Debian: libpq-dev)",
       "SYNCGUARD_POSTGRES"},
      {{"redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+unix"},
       SYNCGUARD_FACTORY_IF(SYNCGUARD_HAS_REDIS, redis::from_url),
       "Redis",
       "hiredis (Debian: libhiredis-dev)",
       "SYNCGUARD_REDIS"},
      {{"sqlite"},
       SYNCGUARD_FACTORY_IF(SYNCGUARD_HAS_SQLITE, sqlite::from_url),
       "embedded",
       "SQLite (Debian: libsqlite3-dev)",
       "SYNCGUARD_SQLITE"},
  };
  return backends;
}

struct Registry {
  Registry() {
    for (const auto& backend : built_in()) {
      if (!backend.factory) continue;
      for (const auto& scheme : backend.schemes) factories.emplace(scheme, backend.factory);
    }
  }

  std::mutex mutex;
  std::map<std::string, BackendFactory, std::less<>> factories;
};

Registry& registry() {
  static auto& instance = *new Registry;
  return instance;
}

[[noreturn]] void refuse_scheme(const std::string& scheme) {
  for (const auto& backend : built_in()) {
    if (std::ranges::find(backend.schemes, scheme) == backend.schemes.end()) continue;
    throw LockError(ErrorCode::invalid_argument, "this build has no " + backend.name + " backend: install " +
                                                     backend.needs + " and configure with -D" + backend.option + "=ON");
  }
  std::string schemes;
  for (const auto& known : registered_schemes()) schemes += (schemes.empty() ? "" : ", ") + known + ":";
  throw LockError(ErrorCode::invalid_argument, "unknown backend '" + scheme + ":'; this build knows " + schemes);
}

}  // namespace

void register_backend(std::string scheme, BackendFactory factory) {
  auto& known = registry();
  const std::lock_guard lock(known.mutex);
  known.factories.insert_or_assign(std::move(scheme), std::move(factory));
}

std::vector<std::string> registered_schemes() {
  auto& known = registry();
  const std::lock_guard lock(known.mutex);
  std::vector<std::string> schemes;
  for (const auto& [scheme, factory] : known.factories) schemes.push_back(scheme);
  return schemes;
}

std::unique_ptr<Backend> make_backend(BackendUrl& url, const BackendContext& context) {
  BackendFactory factory;
  {
    auto& known = registry();
    const std::lock_guard lock(known.mutex);
    const auto found = known.factories.find(url.scheme());
    if (found != known.factories.end()) factory = found->second;
  }
  if (!factory) refuse_scheme(url.scheme());
  auto backend = factory(url, context);
  url.expect_no_more_options();
  return backend;
}

}  // namespace v0_1
}  // namespace syncguard
