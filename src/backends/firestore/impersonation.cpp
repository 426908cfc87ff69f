#include "backends/firestore/impersonation.hpp"

#include "backends/firestore/call.hpp"
#include "backends/firestore/documents.hpp"
#include "core/encodings.hpp"
#include "firestore.pb.h"
#include "os/clocks.hpp"

#include <syncguard/boot_clock.hpp>

#include <grpcpp/create_channel.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <utility>

namespace syncguard::firestore {
namespace {

using std::chrono::seconds;

constexpr Method<wire::GenerateAccessTokenRequest, wire::GenerateAccessTokenResponse> generate_access_token{
    "/google.iam.credentials.v1.IAMCredentials/GenerateAccessToken"};
constexpr const char* scope = "https://www.googleapis.com/auth/cloud-platform";
constexpr seconds token_lifetime{3600};
// How long before its expiry a token is replaced. Until then, a failure to replace it does no harm.
constexpr seconds replaced_before_expiry{300};
constexpr seconds request_timeout{10};

class ImpersonatedAccount : public grpc::MetadataCredentialsPlugin {
 public:
  explicit ImpersonatedAccount(Impersonation impersonation) : impersonation_(std::move(impersonation)) {}

  [[nodiscard]] const char* GetType() const override { return "ImpersonatedAccount"; }
  // Without the token.
  grpc::string DebugString() override { return GetType(); }

  // gRPC calls this on a thread that may block.
  grpc::Status GetMetadata(grpc::string_ref /*service_url*/, grpc::string_ref /*method_name*/,
                           const grpc::AuthContext& /*channel_auth_context*/,
                           std::multimap<grpc::string, grpc::string>* metadata) override {
    const std::lock_guard lock(mutex_);
    if (BootClock::now() >= valid_until_ - replaced_before_expiry) {
      const auto status = replace_token();
      if (!status.ok() && BootClock::now() >= valid_until_) {
        return {grpc::StatusCode::UNKNOWN, "cannot impersonate the service account: gRPC status " +
                                               std::to_string(status.error_code()) + ": " + status.error_message()};
      }
    }
    metadata->emplace("authorization", "Bearer " + token_);
    return grpc::Status::OK;
  }

 private:
  grpc::Status replace_token() {
    if (!channel_) {
      channel_ = grpc::CreateChannel(
          impersonation_.endpoint, grpc::CompositeChannelCredentials(grpc::SslCredentials({}), impersonation_.source));
    }
    wire::GenerateAccessTokenRequest request;
    request.set_name(impersonation_.account);
    for (const auto& delegate : impersonation_.delegates) request.add_delegates(delegate);
    request.add_scope(scope);
    request.mutable_lifetime()->set_seconds(token_lifetime.count());
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + request_timeout);
    context.AddMetadata("x-goog-request-params", "name=" + core::percent_encoded(impersonation_.account));
    if (!impersonation_.quota_project.empty()) {
      context.AddMetadata("x-goog-user-project", impersonation_.quota_project);
    }
    const auto sent_at = BootClock::now();
    const auto answer = ask(channel_, generate_access_token, context, request, {});
    if (!answer.status.ok()) return answer.status;
    if (answer.responses.size() != 1 || answer.responses[0].access_token().empty()) {
      return {grpc::StatusCode::INTERNAL, "the reply contains no token"};
    }
    const auto& response = answer.responses[0];
    const auto expires_at = time_of(response.expire_time());
    if (!expires_at) return {grpc::StatusCode::INTERNAL, "the reply contains no time of expiry"};
    token_ = response.access_token();
    // This host's clock may be wrong, and so may be the reply: the token does not live longer than requested.
    valid_until_ = sent_at + std::min<std::chrono::milliseconds>(*expires_at - os::system_now(), token_lifetime);
    return grpc::Status::OK;
  }

  const Impersonation impersonation_;
  std::mutex mutex_;
  std::shared_ptr<grpc::Channel> channel_;
  std::string token_;
  BootClock::time_point valid_until_{BootClock::time_point::min() + replaced_before_expiry};
};

}  // namespace

std::shared_ptr<grpc::CallCredentials> impersonate(Impersonation impersonation) {
  return grpc::MetadataCredentialsFromPlugin(std::make_unique<ImpersonatedAccount>(std::move(impersonation)));
}

}  // namespace syncguard::firestore
