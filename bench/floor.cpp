#include "floor.hpp"

namespace syncguard::bench {

std::optional<Floor> floor_of(const Settings& settings) {
#ifdef SYNCGUARD_HAS_REDIS
  if (settings.url.starts_with("redis")) return redis_floor(settings.url);
#endif
  return std::nullopt;
}

}  // namespace syncguard::bench
