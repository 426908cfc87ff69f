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
  // A caller with a connection of its own; calling it acquires and releases the key once.
  std::function<std::function<void()>(const Key& key)> make_caller;
};

// Nothing where the URL's backend has no floor but its own coroutines.
std::optional<Floor> floor_of(const Settings& settings);

#ifdef SYNCGUARD_HAS_REDIS
Floor redis_floor(const std::string& url);
#endif

}  // namespace syncguard::bench
