#include "floor.hpp"

namespace syncguard::bench {

void set_up(const Settings& settings) { open(settings.url, {.operation_timeout = 30s}).admin().setup(); }

std::optional<Floor> floor_of(const Settings& settings) {
#ifdef SYNCGUARD_HAS_FIRESTORE
  if (settings.url.starts_with("firestore")) return firestore_floor(settings.url);
#endif
#ifdef SYNCGUARD_HAS_POSTGRES
  if (settings.url.starts_with("postgres")) return postgres_floor(settings.url);
#endif
#ifdef SYNCGUARD_HAS_REDIS
  if (settings.url.starts_with("redis")) return redis_floor(settings.url);
#endif
#ifdef SYNCGUARD_HAS_SQLITE
  if (settings.url.starts_with("sqlite")) return sqlite_floor(settings.url);
#endif
  return std::nullopt;
}

}  // namespace syncguard::bench
