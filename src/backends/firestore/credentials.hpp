// Finds Google's default credentials, and checks whether gRPC can use them.
#pragma once

#include <grpcpp/security/credentials.h>

#include <memory>
#include <string>
#include <string_view>

namespace syncguard::firestore {

struct DefaultCredentials {
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  // The project that is billed for the requests, if it is not the account's own; may be empty.
  std::string quota_project;
};

// Searches the same places as gRPC: the file named by GOOGLE_APPLICATION_CREDENTIALS, the file of the gcloud command,
// and the machine's metadata server. May take seconds. Throws LockError(auth_failed) if there are no credentials, or if
// gRPC cannot use the file or the type of credentials; gRPC itself would silently continue with the next place, and
// with another account.
DefaultCredentials find_default_credentials();

// Checks the contents of a credentials file. Returns the project that is billed for the requests, or an empty string.
// Throws LockError(auth_failed) with the given name of the file in the message.
std::string check_credentials_file(std::string_view contents, const std::string& name);

}  // namespace syncguard::firestore
