// Redis by URL.
#pragma once

#include <syncguard/redis.hpp>
#include <syncguard/registry.hpp>

namespace syncguard::redis {

std::unique_ptr<Backend> from_url(BackendUrl& url, const BackendContext& context);

// What a URL says, for from_url and its tests.
RedisOptions options_of(BackendUrl& url);

}  // namespace syncguard::redis
