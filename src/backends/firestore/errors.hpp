// Turns errors of Firestore and gRPC into LockError.
#pragma once

#include <syncguard/error.hpp>

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

namespace syncguard::firestore {

// Converts a status code inside a message, which may be any number. A code that gRPC does not know becomes UNKNOWN.
grpc::StatusCode status_code(int code) noexcept;

// The error of a failed read, and of a failed Commit, which is in doubt unless the status rules out that it took
// effect. The server's message becomes the error's cause, never part of its message, because it may contain document
// names.
LockError read_error(const grpc::Status& status);
LockError commit_error(const grpc::Status& status);

// Whether a call failed because no access token could be obtained. That is the only reason for the status UNKNOWN
// before a call is sent, and UNAVAILABLE has a message of its own then; a status from the server comes with the address
// of a peer.
bool is_token_failure(const grpc::Status& status, const grpc::ClientContext& context);
LockError token_error(const grpc::Status& status);

// The error for a reply that is larger than any that locks need.
LockError too_large(Effect effect);

// Whether a Commit was rejected because a document has changed since it was read.
bool is_conflict(const grpc::Status& status);

}  // namespace syncguard::firestore
