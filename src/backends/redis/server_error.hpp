// What a server's refusals mean to a caller.
#pragma once

#include <syncguard/error.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace syncguard::redis {

// The code that an error begins with, such as NOPERM; one that was raised inside a script is found behind what older
// servers put before it.
std::string_view code_of(std::string_view error);

// The server's own words go into the error's cause, never into its message: they may contain anything. unknown is said
// of errors that nobody has foreseen: a script may have failed half-way.
LockError server_error(std::string_view error, Effect unknown = Effect::in_doubt);

// Where a node of a cluster says that the keys are.
struct Moved {
  std::string host;  // empty: the same
  std::uint16_t port;
};
std::optional<Moved> moved_to(std::string_view error);

}  // namespace syncguard::redis
