// Turns error replies of the server into LockError.
#pragma once

#include <syncguard/error.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace syncguard::redis {

// The code at the beginning of an error, such as NOPERM. Skips the text that older servers put before an error that was
// raised inside a script.
std::string_view code_of(std::string_view error);

// The server's message becomes the error's cause, never part of our message, because it may contain anything. unknown
// is the effect of errors that are not in the list: a script may have failed halfway.
LockError server_error(std::string_view error, Effect unknown = Effect::in_doubt);

// The address in a MOVED error of a cluster node.
struct Moved {
  std::string host;  // empty: the same host
  std::uint16_t port;
};
std::optional<Moved> moved_to(std::string_view error);
// The same for an ASK error: where to send this one request while the keys are moving to another node.
std::optional<Moved> asked_at(std::string_view error);

}  // namespace syncguard::redis
