#include "backends/redis/errors.hpp"

#include "core/causes.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

namespace syncguard::redis {
namespace {

struct Meaning {
  std::string_view code;
  ErrorCode error;
  std::string_view explanation;
};

constexpr std::array meanings = {
    Meaning{"NOAUTH", ErrorCode::auth_failed, "Redis requires a password"},
    Meaning{"WRONGPASS", ErrorCode::auth_failed, "Redis rejected the user name or password"},
    Meaning{"NOPERM", ErrorCode::auth_failed,
            "Redis refused: this user lacks a permission that locks need (docs/redis.md lists them)"},
    Meaning{"DENIED", ErrorCode::auth_failed,
            "Redis is in protected mode: set a password, or bind it to another address"},
    Meaning{"LOADING", ErrorCode::service_unavailable, "Redis is still loading its data"},
    Meaning{"MASTERDOWN", ErrorCode::service_unavailable, "this Redis is a replica that has lost its master"},
    Meaning{"READONLY", ErrorCode::service_unavailable, "this Redis is a read-only replica"},
    Meaning{"UNBLOCKED", ErrorCode::service_unavailable, "this Redis is no longer a master"},
    Meaning{"CLUSTERDOWN", ErrorCode::service_unavailable, "the Redis cluster is down"},
    Meaning{"TRYAGAIN", ErrorCode::service_unavailable, "the Redis cluster is moving these keys"},
    Meaning{"ASK", ErrorCode::service_unavailable, "the Redis cluster is moving these keys"},
    Meaning{"MOVED", ErrorCode::service_unavailable, "the Redis cluster has moved these keys"},
    Meaning{"BUSY", ErrorCode::service_unavailable, "Redis is busy with a script that takes too long"},
    Meaning{"MISCONF", ErrorCode::service_unavailable, "Redis refuses writes because it cannot save them to its disk"},
    Meaning{"NOREPLICAS", ErrorCode::service_unavailable, "Redis refuses writes because it has too few replicas"},
    Meaning{"OOM", ErrorCode::rate_limited, "Redis has reached its memory limit"},
    Meaning{"WRONGTYPE", ErrorCode::invalid_argument,
            "Redis holds a value of another type at a name that this key needs"},
    Meaning{"CROSSSLOT", ErrorCode::invalid_argument,
            "a Redis Cluster needs a prefix with a hash tag, such as {syncguard}"},
};

const Meaning* find_meaning(std::string_view code) {
  const auto* found = std::ranges::find(meanings, code, &Meaning::code);
  return found == meanings.end() ? nullptr : found;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// MOVED 3999 127.0.0.1:6381, ASK 3999 127.0.0.1:6381
std::optional<Moved> redirection(std::string_view error, std::string_view code) {
  if (code_of(error) != code) return std::nullopt;
  const auto address = error.substr(error.rfind(' ') + 1);
  const auto colon = address.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  Moved moved{.host = std::string(address.substr(0, colon)), .port = 0};
  const auto port = address.substr(colon + 1);
  const auto [end, failure] = std::from_chars(port.data(), port.data() + port.size(), moved.port);
  if (failure != std::errc() || end != port.data() + port.size() || moved.port == 0) return std::nullopt;
  return moved;
}

}  // namespace

std::string_view code_of(std::string_view error) {
  const auto first_word = error.substr(0, error.find(' '));
  if (first_word != "ERR" || !contains(error, "script")) return first_word;
  // Before version 7: "ERR Error running script (call to f_…): @user_script:7: WRONGTYPE Operation against …"
  while (!error.empty()) {
    const auto word = error.substr(0, error.find_first_of(" :"));
    // The code is a word of its own, sometimes with the protocol's leading dash.
    const auto bare = word.starts_with('-') ? word.substr(1) : word;
    if (find_meaning(bare) != nullptr) return bare;
    error.remove_prefix(std::min(error.size(), word.size() + 1));
  }
  return first_word;
}

LockError server_error(std::string_view error, Effect unknown) {
  const auto with_cause = [error](ErrorCode code, std::string_view message, Effect effect) {
    return core::with_cause(code, std::string(message), std::string(error), effect);
  };
  const auto code = code_of(error);
  if (const auto* meaning = find_meaning(code)) {
    return with_cause(meaning->error, meaning->explanation, Effect::none);
  }
  if (contains(error, "max number of clients")) {
    return with_cause(ErrorCode::rate_limited, "Redis has reached its limit of clients", Effect::none);
  }
  if (contains(error, "WAIT cannot be used with replica")) {
    return with_cause(ErrorCode::service_unavailable, find_meaning("UNBLOCKED")->explanation, Effect::none);
  }
  if (contains(error, "Script killed")) {
    return with_cause(ErrorCode::service_unavailable, "the script was killed on the server", Effect::in_doubt);
  }
  // Errors inside scripts, in the wording of versions 6 and 7.
  if (contains(error, "ACL failure in script") || contains(error, "The user executing the script")) {
    return with_cause(ErrorCode::auth_failed, find_meaning("NOPERM")->explanation, Effect::none);
  }
  // Errors inside scripts while keys or slots move to another node.
  if (contains(error, "non local key") || contains(error, "cluster is down")) {
    return with_cause(ErrorCode::service_unavailable, find_meaning("TRYAGAIN")->explanation, Effect::in_doubt);
  }
  if (contains(error, "syntax error") || contains(error, "unknown command") ||
      contains(error, "Unknown Redis command") || contains(error, "invalid expire") || contains(error, "DB index") ||
      contains(error, "invalid DB") || contains(error, "SELECT is not allowed")) {
    return with_cause(ErrorCode::invalid_argument, "Redis rejected the request as invalid", Effect::none);
  }
  return with_cause(ErrorCode::internal, "Redis failed unexpectedly; its message is in the error's cause", unknown);
}

std::optional<Moved> moved_to(std::string_view error) { return redirection(error, "MOVED"); }
std::optional<Moved> asked_at(std::string_view error) { return redirection(error, "ASK"); }

}  // namespace syncguard::redis
