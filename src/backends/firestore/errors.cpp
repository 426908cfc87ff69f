#include "backends/firestore/errors.hpp"

#include "core/causes.hpp"

#include <string>

namespace syncguard::firestore {
namespace {

struct Meaning {
  ErrorCode code;
  const char* message;
};

Meaning meaning_of(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::UNAVAILABLE:
      return {ErrorCode::service_unavailable, "Firestore is unreachable or temporarily unavailable"};
    case grpc::StatusCode::INTERNAL:
      return {ErrorCode::service_unavailable, "Firestore reported a temporary internal error"};
    case grpc::StatusCode::ABORTED:
      return {ErrorCode::service_unavailable, "Firestore aborted this request because of a conflict with others"};
    case grpc::StatusCode::PERMISSION_DENIED:
      return {ErrorCode::auth_failed,
              "this account may not read and write the collections: it needs the role Cloud Datastore User "
              "(roles/datastore.user)"};
    case grpc::StatusCode::UNAUTHENTICATED:
      return {ErrorCode::auth_failed, "Firestore rejected the credentials"};
    case grpc::StatusCode::NOT_FOUND:
      return {ErrorCode::invalid_argument, "the project or database does not exist"};
    case grpc::StatusCode::FAILED_PRECONDITION:
      return {ErrorCode::invalid_argument,
              "Firestore cannot execute this request: the database is in Datastore mode, or lockId has no index"};
    case grpc::StatusCode::INVALID_ARGUMENT:
      return {ErrorCode::invalid_argument, "Firestore rejected the request as invalid"};
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return {ErrorCode::rate_limited, "a Firestore quota is exhausted"};
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return {ErrorCode::network_timeout, "timed out waiting for Firestore"};
    default:
      return {ErrorCode::internal, "Firestore failed unexpectedly; its message is in the error's cause"};
  }
}

std::string words_of(const grpc::Status& status) {
  return "gRPC status " + std::to_string(status.error_code()) + ": " + status.error_message();
}

// gRPC rejects a message that is too large with the same status code as an exhausted quota.
bool is_too_large(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
         status.error_message().find("message larger than max") != std::string::npos;
}

LockError error_of(const grpc::Status& status, Effect effect) {
  if (is_too_large(status)) return too_large(effect);
  const auto [code, message] = meaning_of(status.error_code());
  return core::with_cause(code, message, words_of(status), effect);
}

}  // namespace

grpc::StatusCode status_code(int code) noexcept {
  const bool is_known = code >= grpc::StatusCode::OK && code <= grpc::StatusCode::UNAUTHENTICATED;
  return is_known ? static_cast<grpc::StatusCode>(code) : grpc::StatusCode::UNKNOWN;
}

LockError too_large(Effect effect) {
  return LockError(ErrorCode::internal,
                   "Firestore's reply is larger than any that locks need: is something else stored in the collections, "
                   "or is this not Firestore?",
                   effect);
}

LockError read_error(const grpc::Status& status) { return error_of(status, Effect::none); }

LockError commit_error(const grpc::Status& status) {
  switch (status.error_code()) {
    // Firestore returns these before it writes anything.
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::INVALID_ARGUMENT:
      return error_of(status, Effect::none);
    // Includes RESOURCE_EXHAUSTED, which gRPC also reports for a stream that was cut off.
    default:
      return error_of(status, Effect::in_doubt);
  }
}

bool is_token_failure(const grpc::Status& status, const grpc::ClientContext& context) {
  // What gRPC 1.51 says if our own credentials, those of an impersonated account, fail.
  const bool is_own_failure = status.error_code() == grpc::StatusCode::UNAVAILABLE &&
                              status.error_message().starts_with("Getting metadata from plugin failed");
  if (status.error_code() != grpc::StatusCode::UNKNOWN && !is_own_failure) return false;
  // Once a call is assigned to a connection, peer() is an address. Before that, it is the channel's target.
  const auto peer = context.peer();
  return !peer.starts_with("ipv4:") && !peer.starts_with("ipv6:") && !peer.starts_with("unix:");
}

LockError token_error(const grpc::Status& status) {
  return core::with_cause(ErrorCode::service_unavailable,
                          "cannot obtain an access token for the Google Cloud credentials; nothing was sent: "
                          "check that the token server can be reached and that the credentials are still valid",
                          words_of(status));
}

bool is_conflict(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::ALREADY_EXISTS:
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::ABORTED:
      return true;
    default:
      return false;
  }
}

}  // namespace syncguard::firestore
