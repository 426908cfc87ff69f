#include "backends/url.hpp"

namespace syncguard::sqlite {

SqliteOptions options_of(BackendUrl& url) {
  SqliteOptions options;
  options.path = BackendUrl::decode(url.rest());
  if (options.path.empty()) options.path = default_sqlite_path();
  options.fences = take_fences(url);
  options.cleanup_in_is_locked = url.take_flag("cleanup_in_is_locked").value_or(options.cleanup_in_is_locked);
  return options;
}

std::unique_ptr<Backend> from_url(BackendUrl& url, const BackendContext& context) {
  return make_sqlite_backend(options_of(url), context.log);
}

}  // namespace syncguard::sqlite
