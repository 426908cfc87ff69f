#include "backends/url.hpp"

#include "core/durations.hpp"
#include "core/encodings.hpp"
#include "os/password.hpp"

#include <libpq-fe.h>

#include <memory>
#include <utility>

namespace syncguard::postgres {

PostgresOptions options_of(BackendUrl& url) {
  constexpr std::int64_t max_connections = 1000;
  PostgresOptions options;
  options.table = url.take_text("table").value_or(options.table);
  options.fence_table = url.take_text("fence_table").value_or(options.fence_table);
  if (const auto pool = url.take_integer("pool", 1, max_connections)) options.pool = static_cast<std::size_t>(*pool);
  options.max_connection_lifetime =
      url.take_duration("max_connection_lifetime").value_or(options.max_connection_lifetime);
  options.max_idle_time = url.take_duration("max_idle_time").value_or(options.max_idle_time);
  options.listen_url = url.take_text("listen_url").value_or("");
  if (const auto command = url.take_text("password_command")) {
    options.password_callback = os::password_from_command(*command);
  }
  // A plain number means seconds, as in libpq; otherwise a duration.
  if (const auto text = url.take_text("connect_timeout")) {
    const auto duration =
        core::parse_duration(text->find_first_not_of("0123456789") == std::string::npos ? *text + "s" : *text);
    if (!duration) throw LockError(ErrorCode::invalid_argument, "connect_timeout must be a duration such as 5s");
    options.connect_timeout = *duration;
  }
  options.operation_timeout = url.take_duration("operation_timeout").value_or(options.operation_timeout);
  options.fences = take_fences(url);
  options.cleanup_in_is_locked = url.take_flag("cleanup_in_is_locked").value_or(options.cleanup_in_is_locked);

  options.connection = "postgresql:" + url.rest();
  char separator = '?';
  for (const auto& [name, value] : url.take_all()) {
    options.connection += separator + core::percent_encoded(name) + "=" + core::percent_encoded(value);
    separator = '&';
  }
  return options;
}

std::unique_ptr<Backend> from_url(BackendUrl& url, const BackendContext& context) {
  auto options = options_of(url);
  options.operation_timeout = context.operation_timeout.value_or(options.operation_timeout);
  return make_postgres_backend(std::move(options), context.log);
}

}  // namespace syncguard::postgres
