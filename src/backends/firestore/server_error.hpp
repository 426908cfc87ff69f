// What Firestore's refusals mean to a caller.
#pragma once

#include <syncguard/error.hpp>

#include <grpcpp/support/status.h>

namespace syncguard::firestore {

// Of a read, or of a Commit that may have taken effect if gRPC's status leaves that open. The server's own words go
// into the error's cause, never into its message: they may contain document names.
LockError read_error(const grpc::Status& status);
LockError commit_error(const grpc::Status& status);

// Whether a Commit was refused because a document is no longer what it was when it was read.
bool is_lost_race(const grpc::Status& status);

}  // namespace syncguard::firestore
