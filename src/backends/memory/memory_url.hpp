// The in-memory backend by URL.
#pragma once

#include <syncguard/memory.hpp>
#include <syncguard/registry.hpp>

namespace syncguard::memory {

std::unique_ptr<Backend> from_url(BackendUrl& url, const BackendContext& context);

// What a URL says, for from_url.
MemoryOptions options_of(BackendUrl& url);

}  // namespace syncguard::memory
