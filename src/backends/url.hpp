// Creates backends from URLs. options_of removes the options that it knows from the URL, and throws
// LockError(invalid_argument) for invalid values; from_url creates the backend.
#pragma once

#include <syncguard/firestore.hpp>
#include <syncguard/memory.hpp>
#include <syncguard/postgres.hpp>
#include <syncguard/redis.hpp>
#include <syncguard/registry.hpp>
#include <syncguard/sqlite.hpp>

#include <memory>

namespace syncguard {

// An option of every backend whose store outlives its clients.
inline FenceSource take_fences(BackendUrl& url) {
  return url.take_choice("fences", {"clock", "counter"}) == "counter" ? FenceSource::counter : FenceSource::clock;
}

namespace firestore {
FirestoreOptions options_of(BackendUrl& url);
std::unique_ptr<Backend> from_url(BackendUrl& url, const BackendContext& context);
}  // namespace firestore

namespace memory {
MemoryOptions options_of(BackendUrl& url);
std::unique_ptr<Backend> from_url(BackendUrl& url, const BackendContext& context);
}  // namespace memory

// Passes unknown options to libpq.
namespace postgres {
PostgresOptions options_of(BackendUrl& url);
std::unique_ptr<Backend> from_url(BackendUrl& url, const BackendContext& context);
}  // namespace postgres

namespace redis {
RedisOptions options_of(BackendUrl& url);
std::unique_ptr<Backend> from_url(BackendUrl& url, const BackendContext& context);
}  // namespace redis

namespace sqlite {
SqliteOptions options_of(BackendUrl& url);
std::unique_ptr<Backend> from_url(BackendUrl& url, const BackendContext& context);
}  // namespace sqlite

}  // namespace syncguard
