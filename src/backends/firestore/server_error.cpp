#include "backends/firestore/server_error.hpp"

#include "core/with_cause.hpp"

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
      return {ErrorCode::service_unavailable, "Firestore cannot be reached, or cannot serve now"};
    case grpc::StatusCode::INTERNAL:
      return {ErrorCode::service_unavailable, "Firestore failed for a moment"};
    case grpc::StatusCode::ABORTED:
      return {ErrorCode::service_unavailable, "Firestore gave this request up in favour of others"};
    case grpc::StatusCode::PERMISSION_DENIED:
      return {ErrorCode::auth_failed,
              "this account may not read and write the collections: it needs the role Cloud Datastore User "
              "(roles/datastore.user)"};
    case grpc::StatusCode::UNAUTHENTICATED:
      return {ErrorCode::auth_failed, "Firestore refused the credentials"};
    case grpc::StatusCode::NOT_FOUND:
      return {ErrorCode::invalid_argument, "there is no such project or database"};
    case grpc::StatusCode::FAILED_PRECONDITION:
      return {ErrorCode::invalid_argument,
              "Firestore cannot do this here: the database is in Datastore mode, or lockId has no index"};
    case grpc::StatusCode::INVALID_ARGUMENT:
      return {ErrorCode::invalid_argument, "Firestore does not accept what it was asked for"};
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return {ErrorCode::rate_limited, "a quota of Firestore is used up"};
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return {ErrorCode::network_timeout, "Firestore did not answer in time"};
    default:
      return {ErrorCode::internal, "Firestore failed unexpectedly; its own words are in the error's cause"};
  }
}

LockError error_of(const grpc::Status& status, Effect effect) {
  const auto [code, message] = meaning_of(status.error_code());
  return core::with_cause(code, message,
                          "gRPC status " + std::to_string(status.error_code()) + ": " + status.error_message(), effect);
}

}  // namespace

LockError read_error(const grpc::Status& status) { return error_of(status, Effect::none); }

LockError commit_error(const grpc::Status& status) {
  switch (status.error_code()) {
    // Said before anything is written.
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::INVALID_ARGUMENT:
      return error_of(status, Effect::none);
    // RESOURCE_EXHAUSTED too: gRPC makes it of a stream that was cut off as well.
    default:
      return error_of(status, Effect::in_doubt);
  }
}

bool is_lost_race(const grpc::Status& status) {
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
