// The JSON forms of locks, findings and requests, for --json and for the page of `serve`.
#pragma once

#include <syncguard/admin_types.hpp>
#include <syncguard/diagnosis.hpp>
#include <syncguard/error.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace syncguard::command {

// Unix milliseconds.
inline std::int64_t millis(Timestamp time) { return time.time_since_epoch().count(); }

inline nlohmann::ordered_json waiters_json(const std::optional<std::size_t>& waiters) {
  return waiters ? nlohmann::ordered_json(*waiters) : nlohmann::ordered_json(nullptr);
}

inline nlohmann::ordered_json holder_json(const Key& key, const Holder& holder,
                                          const std::optional<std::size_t>& waiters) {
  return {{"key", key.str()},
          {"holder", holder.label},
          {"fence", holder.fence.str()},
          {"acquiredAtMs", millis(holder.acquired_at)},
          {"expiresAtMs", millis(holder.expires_at)},
          {"waiters", waiters_json(waiters)}};
}

inline nlohmann::ordered_json lock_json(const ListedLock& lock) {
  return holder_json(
      lock.key,
      {.fence = lock.fence, .acquired_at = lock.acquired_at, .expires_at = lock.expires_at, .label = lock.holder},
      lock.waiters);
}

// What a client asks `serve` to break.
struct BreakRequest {
  Key key;
  Fence fence;

  // Reads {"key": "...", "fence": "..."}. Throws LockError(invalid_argument).
  static BreakRequest parse(std::string_view body) {
    try {
      const auto object = nlohmann::json::parse(body);
      return {.key = Key(object.at("key").get<std::string>()),
              .fence = Fence::parse(object.at("fence").get<std::string>())};
    } catch (const nlohmann::json::exception&) {
      throw LockError(ErrorCode::invalid_argument, "the body must be an object with a key and a fence");
    }
  }
};

inline const char* verdict_name(Finding::Verdict verdict) {
  switch (verdict) {
    case Finding::Verdict::fine:
      return "fine";
    case Finding::Verdict::warning:
      return "warning";
    case Finding::Verdict::failure:
      break;
  }
  return "failure";
}

inline nlohmann::ordered_json finding_json(const Finding& finding) {
  return {{"check", finding.check},
          {"verdict", verdict_name(finding.verdict)},
          {"found", finding.found},
          {"advice", finding.advice}};
}

}  // namespace syncguard::command
