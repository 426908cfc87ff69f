#include "core/validation.hpp"

#include <syncguard/error.hpp>

namespace syncguard::core {

void validate_ttl(std::chrono::milliseconds ttl) {
  constexpr std::chrono::milliseconds longest{1'000'000'000'000};
  if (ttl < std::chrono::milliseconds(1) || ttl > longest) {
    throw LockError(ErrorCode::invalid_argument, "ttl must be from 1 ms to 1000000000000 ms");
  }
}

void validate(const WaitOptions& options) {
  const auto require = [](bool holds, const char* message) {
    if (!holds) throw LockError(ErrorCode::invalid_argument, message);
  };
  constexpr std::chrono::milliseconds zero{0};
  require(options.timeout >= zero, "wait.timeout must not be negative");
  require(options.max_retries >= 0, "wait.max_retries must not be negative");
  require(options.retry_delay >= zero, "wait.retry_delay must not be negative");
  require(options.max_delay >= zero, "wait.max_delay must not be negative");
}

}  // namespace syncguard::core
