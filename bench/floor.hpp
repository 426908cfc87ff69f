// A floor does the same work as the library, directly with the store's client library.
#pragma once

#include "bench.hpp"

#include <syncguard/key.hpp>

#include <functional>
#include <optional>
#include <string>

namespace syncguard::bench {

struct Floor {
  // A description, such as "hiredis, blocking, the same scripts".
  std::string name;
  // The numbers of blocking callers to compare.
  std::vector<int> callers;
  // The numbers of processes, with one caller each, to compare.
  std::vector<int> processes{};
  // Creates a caller with its own connection. Each call acquires and releases the key once.
  std::function<std::function<void()>(const Key& key)> make_caller;
};

// Prepares the store, as `syncguard setup` does.
void set_up(const Settings& settings);

// Empty if the only floor of the URL's backend is its own coroutines.
std::optional<Floor> floor_of(const Settings& settings);

#ifdef SYNCGUARD_HAS_FIRESTORE
Floor firestore_floor(const std::string& url);
#endif
#ifdef SYNCGUARD_HAS_POSTGRES
Floor postgres_floor(const std::string& url);
#endif
#ifdef SYNCGUARD_HAS_SQLITE
Floor sqlite_floor(const std::string& url);
#endif
#ifdef SYNCGUARD_HAS_REDIS
Floor redis_floor(const std::string& url);
#endif

}  // namespace syncguard::bench
