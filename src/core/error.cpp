#include <syncguard/error.hpp>

#include <utility>

namespace syncguard {
inline namespace v0_1 {

std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::service_unavailable:
      return "ServiceUnavailable";
    case ErrorCode::auth_failed:
      return "AuthFailed";
    case ErrorCode::invalid_argument:
      return "InvalidArgument";
    case ErrorCode::rate_limited:
      return "RateLimited";
    case ErrorCode::network_timeout:
      return "NetworkTimeout";
    case ErrorCode::acquisition_timeout:
      return "AcquisitionTimeout";
    case ErrorCode::aborted:
      return "Aborted";
    case ErrorCode::lock_lost:
      return "LockLost";
    case ErrorCode::internal:
      return "Internal";
  }
  return "Internal";
}

bool retryable(ErrorCode code) noexcept {
  return code == ErrorCode::service_unavailable || code == ErrorCode::rate_limited ||
         code == ErrorCode::network_timeout;
}

LockError::LockError(ErrorCode code, const std::string& message, Effect effect, ErrorContext context)
    : std::runtime_error(std::string(to_string(code)) + ": " + message),
      code_(code),
      effect_(effect),
      context_(std::make_shared<const ErrorContext>(std::move(context))) {}

LockError::~LockError() = default;
LockError::LockError(const LockError&) noexcept = default;
LockError& LockError::operator=(const LockError&) noexcept = default;

LockError LockError::about(std::string_view key, std::string_view lock_id) const {
  ErrorContext context = *context_;
  if (context.key.empty()) context.key = key;
  if (context.lock_id.empty()) context.lock_id = lock_id;
  LockError copy = *this;
  copy.context_ = std::make_shared<const ErrorContext>(std::move(context));
  return copy;
}

LockError LockError::as_no_effect() const {
  LockError copy = *this;
  copy.effect_ = Effect::none;
  return copy;
}

LockError LockError::as_in_doubt() const {
  LockError copy = *this;
  copy.effect_ = Effect::in_doubt;
  return copy;
}

}  // namespace v0_1
}  // namespace syncguard
