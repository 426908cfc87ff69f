// A program creates and configures a backend without the headers of Asio. Compiled only.

#include <syncguard/firestore.hpp>
#include <syncguard/locks.hpp>
#include <syncguard/memory.hpp>
#include <syncguard/postgres.hpp>
#include <syncguard/redis.hpp>
#include <syncguard/registry.hpp>
#include <syncguard/sqlite.hpp>

#ifdef ASIO_DETAIL_CONFIG_HPP
#error these headers must not need Asio
#endif

#include <memory>
#include <utility>

namespace syncguard::testing {

Locks open_with(std::unique_ptr<Backend> backend);
Locks open_with(std::unique_ptr<Backend> backend) { return Locks(std::move(backend)); }

Locks open_redis(RedisOptions options);
Locks open_redis(RedisOptions options) { return Locks(make_redis_backend(std::move(options))); }

}  // namespace syncguard::testing
