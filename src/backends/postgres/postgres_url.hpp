// PostgreSQL by URL.
#pragma once

#include <syncguard/postgres.hpp>
#include <syncguard/registry.hpp>

namespace syncguard::postgres {

std::unique_ptr<Backend> from_url(BackendUrl& url, const BackendContext& context);

// What a URL says: ours is taken out, the rest is libpq's.
PostgresOptions options_of(BackendUrl& url);

}  // namespace syncguard::postgres
