// What does the same work as the library with nothing in between.
#pragma once

#include "bench.hpp"

#include <syncguard/key.hpp>

#include <functional>
#include <optional>
#include <string>

namespace syncguard::bench {

struct Floor {
  // What it is made of.
  std::string name;
  // With how many blocking callers to compare.
  std::vector<int> callers;
  // With how many processes of one caller each, if that is of interest.
  std::vector<int> processes{};
  // A caller with a connection of its own; calling it acquires and releases the key once.
  std::function<std::function<void()>(const Key& key)> make_caller;
};

// Makes what the URL's backend needs.
void set_up(const Settings& settings);

// Nothing where the URL's backend has no floor but its own coroutines.
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
