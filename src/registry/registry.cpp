#include <syncguard/registry.hpp>

#ifdef SYNCGUARD_HAS_FIRESTORE
#include "backends/firestore/firestore_url.hpp"
#endif
#include "backends/memory/memory_url.hpp"
#ifdef SYNCGUARD_HAS_POSTGRES
#include "backends/postgres/postgres_url.hpp"
#endif
#ifdef SYNCGUARD_HAS_REDIS
#include "backends/redis/redis_url.hpp"
#endif
#ifdef SYNCGUARD_HAS_SQLITE
#include "backends/sqlite/sqlite_url.hpp"
#endif

#include <mutex>
#include <utility>

namespace syncguard {
namespace {

struct Registry {
  std::mutex mutex;
  // A new backend: its header above, its schemes here, and in make_backend what to say where it was left out.
  std::map<std::string, BackendFactory, std::less<>> factories = {
#ifdef SYNCGUARD_HAS_FIRESTORE
      {"firestore", firestore::from_url},
#endif
      {"memory", memory::from_url},
#ifdef SYNCGUARD_HAS_POSTGRES
      {"postgres", postgres::from_url},   {"postgresql", postgres::from_url},
#endif
#ifdef SYNCGUARD_HAS_REDIS
      {"redis", redis::from_url},         {"rediss", redis::from_url},        {"redis+unix", redis::from_url},
#endif
#ifdef SYNCGUARD_HAS_SQLITE
      {"sqlite", sqlite::from_url},
#endif
  };
};

Registry& registry() {
  static Registry instance;
  return instance;
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
#ifndef SYNCGUARD_HAS_FIRESTORE
  if (!factory && url.scheme() == "firestore") {
    throw LockError(ErrorCode::invalid_argument,
                    "this build has no Firestore backend: install gRPC and protobuf (Debian: libgrpc++-dev, "
                    "libprotobuf-dev, protobuf-compiler) and configure with -DSYNCGUARD_FIRESTORE=ON");
  }
#endif
#ifndef SYNCGUARD_HAS_POSTGRES
  if (!factory && url.scheme().starts_with("postgres")) {
    throw LockError(ErrorCode::invalid_argument,
                    "this build has no PostgreSQL backend: install libpq (Debian: libpq-dev) and configure with "
                    "-DSYNCGUARD_POSTGRES=ON");
  }
#endif
#ifndef SYNCGUARD_HAS_REDIS
  if (!factory && url.scheme().starts_with("redis")) {
    throw LockError(ErrorCode::invalid_argument,
                    "this build has no Redis backend: install hiredis (Debian: libhiredis-dev) and configure with "
                    "-DSYNCGUARD_REDIS=ON");
  }
#endif
#ifndef SYNCGUARD_HAS_SQLITE
  if (!factory && url.scheme() == "sqlite") {
    throw LockError(ErrorCode::invalid_argument,
                    "this build has no embedded backend: install SQLite (Debian: libsqlite3-dev) and configure with "
                    "-DSYNCGUARD_SQLITE=ON");
  }
#endif
  if (!factory) {
    std::string schemes;
    for (const auto& scheme : registered_schemes()) schemes += (schemes.empty() ? "" : ", ") + scheme + ":";
    throw LockError(ErrorCode::invalid_argument,
                    "unknown backend '" + url.scheme() + ":'; this build knows " + schemes);
  }
  auto backend = factory(url, context);
  url.expect_no_more_options();
  return backend;
}

}  // namespace syncguard
