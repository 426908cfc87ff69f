#include "floor.hpp"

#ifdef SYNCGUARD_HAS_POSTGRES
#include "backends/postgres/postgres_url.hpp"
#endif

namespace syncguard::bench {

void set_up([[maybe_unused]] const Settings& settings) {
#ifdef SYNCGUARD_HAS_POSTGRES
  if (!settings.url.starts_with("postgres")) return;
  BackendUrl url(settings.url);
  setup_postgres_schema(postgres::options_of(url));
#endif
}

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
  return std::nullopt;
}

}  // namespace syncguard::bench
