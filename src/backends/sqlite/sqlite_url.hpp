#pragma once

#include <syncguard/registry.hpp>
#include <syncguard/sqlite.hpp>

#include <memory>

namespace syncguard::sqlite {

// Takes what it knows out of the URL.
SqliteOptions options_of(BackendUrl& url);

std::unique_ptr<Backend> from_url(BackendUrl& url, const BackendContext& context);

}  // namespace syncguard::sqlite
