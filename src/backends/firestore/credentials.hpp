// Finds and makes Google's credentials, and checks whether they can be used.
#pragma once

#include <grpcpp/security/credentials.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace syncguard::firestore {

struct Credentials {
  std::shared_ptr<grpc::ChannelCredentials> channel;
  // The project that is billed for the requests, if it is not the account's own; may be empty.
  std::string quota_project;
};

// Searches the same places as gRPC: the file named by GOOGLE_APPLICATION_CREDENTIALS, the file of the gcloud command,
// and the machine's metadata server. May take seconds. Throws LockError(auth_failed) if there are no credentials, or if
// the file cannot be used; gRPC itself would silently continue with the next place, and with another account.
// allowed_endpoint: see may_receive_tokens().
Credentials find_default_credentials(const std::string& allowed_endpoint);

// Credentials from the contents of a file. Throws LockError(auth_failed), with the given name of the file in the
// message, if they cannot be used.
Credentials make_credentials(std::string_view contents, const std::string& name, const std::string& allowed_endpoint);

// Checks the contents of a credentials file. Returns the project that is billed for the requests, or an empty string.
// Throws LockError(auth_failed) with the given name of the file in the message.
std::string check_credentials_file(std::string_view contents, const std::string& name);

// The host of "host" or "host:port", in lower case. nullopt for the other forms of targets that gRPC accepts, because
// they can resolve to other hosts.
std::optional<std::string> host_of(const std::string& endpoint);
// Whether this endpoint may receive an access token, which is valid for more than locks: it is a host of
// googleapis.com, or the allowed one (HOST or HOST:PORT).
bool may_receive_tokens(const std::string& endpoint, const std::string& allowed);

}  // namespace syncguard::firestore
