// The embedded backend by URL.
#pragma once

#include <syncguard/registry.hpp>
#include <syncguard/sqlite.hpp>

namespace syncguard::sqlite {

std::unique_ptr<Backend> from_url(BackendUrl& url, const BackendContext& context);

// What a URL says, for from_url and the benchmark.
SqliteOptions options_of(BackendUrl& url);

}  // namespace syncguard::sqlite
