// Firestore by URL.
#pragma once

#include <syncguard/firestore.hpp>
#include <syncguard/registry.hpp>

namespace syncguard::firestore {

std::unique_ptr<Backend> from_url(BackendUrl& url, const BackendContext& context);

// What a URL says, for from_url and its tests.
FirestoreOptions options_of(BackendUrl& url);

}  // namespace syncguard::firestore
