// Every error of a server becomes a LockError whose message contains none of the server's text. That text is its cause.

#include "core/causes.hpp"

#if SYNCGUARD_HAS_REDIS
#include "backends/redis/errors.hpp"
#endif
#if SYNCGUARD_HAS_POSTGRES
#include "backends/postgres/errors.hpp"
#endif
#if SYNCGUARD_HAS_FIRESTORE
#include "backends/firestore/errors.hpp"
#endif

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

using namespace syncguard;

// Part of the server's text.
constexpr std::string_view marker = "<key-or-password>";

[[maybe_unused]] void check(const LockError& error) {
  const auto has_marker = [](std::string_view text) { return text.find(marker) != std::string_view::npos; };
  if (has_marker(error.what())) std::abort();
  if (error.context().cause && !has_marker(core::message_with_causes(error))) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  // An exception's text ends there.
  if (input.find('\0') != std::string_view::npos) return 0;
  // In the middle: codes are recognized by how a message begins, addresses by how it ends.
  [[maybe_unused]] const auto with_marker = [](std::string_view text) {
    return std::string(text.substr(0, text.size() / 2)).append(marker).append(text.substr(text.size() / 2));
  };
#if SYNCGUARD_HAS_REDIS
  check(redis::server_error(with_marker(input)));
  check(redis::server_error(std::string(input).append(marker), Effect::none));
  if (const auto moved = redis::moved_to(input)) {
    if (moved->port == 0 || input.find(moved->host) == std::string_view::npos) std::abort();
  }
#endif
#if SYNCGUARD_HAS_POSTGRES
  constexpr std::size_t sqlstate_length = 5;
  const auto sqlstate = input.substr(0, sqlstate_length);
  const auto words = with_marker(input.substr(sqlstate.size()));
  check(postgres::server_error(sqlstate, words));
  check(postgres::server_error(sqlstate, words, "SELECT pg_advisory_xact_lock($1)"));
  check(postgres::connect_error(words));
#endif
#if SYNCGUARD_HAS_FIRESTORE
  if (input.empty()) return 0;
  const grpc::Status status(firestore::status_code(static_cast<signed char>(input.front())),
                            with_marker(input.substr(1)));
  check(firestore::read_error(status));
  check(firestore::commit_error(status));
  check(firestore::token_error(status));
  (void)firestore::is_conflict(status);
#endif
  return 0;
}
