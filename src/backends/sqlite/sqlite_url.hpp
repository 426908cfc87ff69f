#pragma once

#include <syncguard/registry.hpp>

#include <memory>

namespace syncguard::sqlite {

std::unique_ptr<Backend> from_url(BackendUrl& url, const BackendContext& context);

}  // namespace syncguard::sqlite
