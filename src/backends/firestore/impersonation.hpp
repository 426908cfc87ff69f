// Access tokens of a service account that another account may impersonate.
#pragma once

#include <grpcpp/security/credentials.h>

#include <memory>
#include <string>
#include <vector>

namespace syncguard::firestore {

struct Impersonation {
  // host:port of Google's IAM Credentials API, which issues the tokens.
  std::string endpoint;
  // projects/-/serviceAccounts/ACCOUNT
  std::string account;
  // The accounts between the source and the account, in the same form.
  std::vector<std::string> delegates;
  // The account that impersonates, and the project that is billed for its requests; may be empty.
  std::shared_ptr<grpc::CallCredentials> source;
  std::string quota_project;
};

// Credentials for calls as the impersonated account. A token is requested when a call needs one, and again shortly
// before it expires. If no token can be obtained, calls fail before they are sent, see is_token_failure().
std::shared_ptr<grpc::CallCredentials> impersonate(Impersonation impersonation);

}  // namespace syncguard::firestore
