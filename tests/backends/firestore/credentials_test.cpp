// Which Google Cloud credentials are used, and which errors unusable ones cause. The test's own TLS server takes the
// place of Firestore.

#include "core/encodings.hpp"
#include "scripted_documents.hpp"
#include "servers/certificates.hpp"
#include "servers/child_process.hpp"
#include "servers/firestore_proxy.hpp"
#include "servers/loopback.hpp"
#include "support/expect_error.hpp"
#include "support/long_timeouts.hpp"
#include "support/temporary_folder.hpp"

#include <syncguard/async.hpp>
#include <syncguard/firestore.hpp>
#include <syncguard/syncguard.hpp>

#include <asio/bind_executor.hpp>
#include <asio/io_context.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <mutex>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

// Each test needs its own process, because gRPC reads the environment only once.
struct FirestoreCredentials : public ::testing::Test {
  FirestoreCredentials() {
    for (const char* name : {"FIRESTORE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT",
                             "GOOGLE_CLOUD_QUOTA_PROJECT", "http_proxy", "https_proxy", "grpc_proxy"}) {
      unsetenv(name);
    }
    setenv("HOME", folder.path().c_str(), 1);
    setenv("NO_GCE_CHECK", "true", 1);
    setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", (folder.path() / "ca.crt").c_str(), 1);
  }

  void write(const std::string& name, const std::string& contents) const {
    std::filesystem::create_directories((folder.path() / name).parent_path());
    std::ofstream(folder.path() / name) << contents;
  }
  void use(const std::string& contents) const {
    write("credentials.json", contents);
    setenv("GOOGLE_APPLICATION_CREDENTIALS", (folder.path() / "credentials.json").c_str(), 1);
  }
  // Credentials that exchange a token from `source` for one from Google. The tests fail before the exchange.
  [[nodiscard]] static std::string external_account(const std::string& source) {
    return R"({"type":"external_account",)"
           R"("audience":"//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/t",)"
           R"("subject_token_type":"urn:ietf:params:oauth:token-type:jwt",)"
           R"("token_url":"https://sts.googleapis.com/v1/token","credential_source":)" +
           source + "}";
  }
  // Credentials with a private key, which sign their own tokens.
  [[nodiscard]] std::string service_account(const std::string& more = "", const std::string& account = "a") const {
    const auto key = folder.path() / "account.key";
    run_program({"openssl", "genrsa", "-traditional", "-out", key.string(), "2048"}, folder.path() / "openssl.log");
    std::ostringstream pem;
    pem << std::ifstream(key).rdbuf();
    return R"({"type":"service_account","private_key_id":"1","client_id":"1",)"
           R"("client_email":")" +
           account + R"(@project.iam.gserviceaccount.com","private_key":")" +
           std::regex_replace(pem.str(), std::regex("\n"), "\\n") + "\"" + more + "}";
  }
  [[nodiscard]] Locks client() const {
    return open_with_long_timeout("firestore://project?allow_endpoint=localhost&endpoint=localhost:" +
                                  std::to_string(server.port()));
  }
  // A client with credentials in code.
  [[nodiscard]] Locks client_with(const std::string& credentials) const {
    FirestoreOptions options;
    options.project = "project";
    options.endpoint = "localhost:" + std::to_string(server.port());
    options.allow_endpoint = "localhost";
    options.credentials = credentials;
    return Locks(make_firestore_backend(options), with_long_timeout());
  }
  // The error of is_locked().
  [[nodiscard]] LockError error() const { return error(client()); }
  [[nodiscard]] static LockError error(const Locks& locks) {
    const auto thrown = error_of([&] { (void)locks.is_locked("key"); });
    EXPECT_TRUE(thrown);
    return thrown.value_or(LockError(ErrorCode::internal, "nothing was thrown"));
  }

  const TemporaryFolder folder;
  // The comma operator creates the certificates before the server.
  FirestoreProxy server{"", (make_certificates(folder.path()), folder.path())};
};

TEST_F(FirestoreCredentials, FailedTokenRequestIsServiceUnavailable) {
  int refused_port = 0;
  {
    const LoopbackSocket closed_again;
    refused_port = closed_again.port();
  }
  for (const std::string& source : {std::string(R"({"file":"/no/such/file"})"),
                                    R"({"url":"http://127.0.0.1:)" + std::to_string(refused_port) + "/\"}"}) {
    use(external_account(source));
    auto locks = client();
    for (const auto& call : std::vector<std::function<void()>>{[&] { (void)locks.is_locked("key"); },
                                                               [&] { (void)locks.try_acquire("key"); }}) {
      const auto thrown = error_of(call);
      ASSERT_TRUE(thrown) << source;
      EXPECT_EQ(thrown->code(), ErrorCode::service_unavailable) << thrown->what();
      EXPECT_FALSE(thrown->in_doubt());
      EXPECT_THAT(thrown->what(), HasSubstr("access token"));
      EXPECT_TRUE(thrown->context().cause);
    }
    asio::io_context context;
    std::exception_ptr outcome;
    locks.async_is_locked(
        "key", asio::bind_executor(context, [&](std::exception_ptr error, bool) { outcome = std::move(error); }));
    context.run();
    ASSERT_TRUE(outcome);
    expect_error(ErrorCode::service_unavailable, [&] { std::rethrow_exception(outcome); });
  }
  EXPECT_EQ(server.calls(), 0) << "no call must be sent";
}

TEST_F(FirestoreCredentials, UnknownServerFailureIsNotAFailedToken) {
  use(service_account());
  server.set_script([](const std::string&) { return FirestoreProxy::refuse(grpc::StatusCode::UNKNOWN); });
  EXPECT_EQ(error().code(), ErrorCode::internal);
  EXPECT_THAT(server.header("authorization"), StartsWith("Bearer "))
      << "a token that the service account signed itself";
}

TEST_F(FirestoreCredentials, UnsupportedCredentialTypesAreRejectedByName) {
  for (const std::string type : {"external_account_authorized_user", "gdch_service_account"}) {
    use(R"({"type":")" + type + R"(","source_credentials":{"type":"authorized_user"}})");
    const auto thrown = error();
    EXPECT_EQ(thrown.code(), ErrorCode::auth_failed);
    EXPECT_THAT(thrown.what(), HasSubstr(type));
    EXPECT_THAT(thrown.what(), HasSubstr("GOOGLE_APPLICATION_CREDENTIALS"));
  }
}

// gRPC alone would search the next location and use the account it finds there.
TEST_F(FirestoreCredentials, UnusableFileIsNeverReplacedByAnotherAccount) {
  write(".config/gcloud/application_default_credentials.json", service_account());
  use("{}");
  EXPECT_THAT(error().what(), HasSubstr("type (none)"));
  use("no JSON");
  EXPECT_THAT(error().what(), HasSubstr("GOOGLE_APPLICATION_CREDENTIALS"));
  use(R"({"type":"\u001b[31m"})");
  EXPECT_THAT(error().what(), Not(HasSubstr("\x1b")));
  setenv("GOOGLE_APPLICATION_CREDENTIALS", "/no/such/file", 1);
  EXPECT_THAT(error().what(), HasSubstr("cannot be read"));
  EXPECT_EQ(error().code(), ErrorCode::auth_failed);
  EXPECT_EQ(server.calls(), 0);
}

TEST_F(FirestoreCredentials, QuotaProjectIsSentWithEveryCall) {
  write(".config/gcloud/application_default_credentials.json",
        service_account(R"(,"quota_project_id":"project-that-pays")"));
  constexpr std::int64_t in_thirty_thousand_years = 1'000'000'000'000'000;
  std::mutex mutex;
  std::set<std::pair<std::string, std::string>> projects;
  std::atomic<bool> is_locked = false;
  server.set_script([&, found = answer_with(lock_document(in_thirty_thousand_years, 1))](const std::string& method) {
    const std::lock_guard lock(mutex);
    projects.emplace(method, server.header("x-goog-user-project"));
    if (method == "BatchGetDocuments") {
      return is_locked ? found(method) : answer_missing({"locks/key", "fence_counters/fence:key"});
    }
    return FirestoreProxy::refuse(grpc::StatusCode::RESOURCE_EXHAUSTED);
  });
  expect_error(ErrorCode::rate_limited, [&] { (void)client().try_acquire("key"); });
  expect_error(ErrorCode::rate_limited, [&] { (void)client().admin().get_by_id(LockId::generate()); });
  is_locked = true;
  expect_error(ErrorCode::acquisition_timeout, [&] { (void)client().acquire("key", {.wait = {.timeout = 2s}}); });
  {
    const std::lock_guard lock(mutex);
    const std::string project = "project-that-pays";
    EXPECT_THAT(projects, UnorderedElementsAre(Pair("BatchGetDocuments", project), Pair("Commit", project),
                                               Pair("Listen", project), Pair("RunQuery", project)));
  }
  server.set_script([](const std::string&) { return FirestoreProxy::refuse(grpc::StatusCode::RESOURCE_EXHAUSTED); });
  setenv("GOOGLE_CLOUD_QUOTA_PROJECT", "another-project", 1);
  EXPECT_EQ(error().code(), ErrorCode::rate_limited);
  EXPECT_EQ(server.header("x-goog-user-project"), "another-project");
  setenv("GOOGLE_CLOUD_QUOTA_PROJECT", "not a\nname", 1);
  EXPECT_THAT(error().what(), HasSubstr("quota project"));
}

// ---------------------------------------------------------------------------------------------------------------------
// Credentials in code

// The account that signed a token: a service account signs its tokens itself. The claims are the token's second part.
std::string signer_of(const std::string& authorization) {
  const auto begin = authorization.find('.') + 1;
  std::string claims;
  unsigned bits = 0;
  unsigned count = 0;
  for (const char c : authorization.substr(begin, authorization.rfind('.') - begin)) {
    const auto value = core::base64url_alphabet.find(c);
    if (value == std::string_view::npos) break;  // padding
    bits = bits << 6U | static_cast<unsigned>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    claims += static_cast<char>(bits >> count & 0xffU);
  }
  return nlohmann::json::parse(claims).at("iss").get<std::string>();
}

TEST_F(FirestoreCredentials, TwoClientsOfOneProcessUseTwoAccounts) {
  server.set_script([](const std::string&) { return answer_missing({"locks/key"}); });
  const auto one = client_with(service_account("", "one"));
  const auto two = client_with(service_account(R"(,"quota_project_id":"payer")", "two"));
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(one.is_locked("key"));
    EXPECT_EQ(signer_of(server.header("authorization")), "one@project.iam.gserviceaccount.com");
    EXPECT_EQ(server.header("x-goog-user-project"), "");
    EXPECT_FALSE(two.is_locked("key"));
    EXPECT_EQ(signer_of(server.header("authorization")), "two@project.iam.gserviceaccount.com");
    EXPECT_EQ(server.header("x-goog-user-project"), "payer");
  }
}

TEST_F(FirestoreCredentials, CredentialsInCodeReplaceThoseOfTheEnvironment) {
  server.set_script([](const std::string&) { return answer_missing({"locks/key"}); });
  use(service_account("", "environment"));
  EXPECT_FALSE(client_with(service_account("", "code")).is_locked("key"));
  EXPECT_EQ(signer_of(server.header("authorization")), "code@project.iam.gserviceaccount.com");
  EXPECT_FALSE(client().is_locked("key"));
  EXPECT_EQ(signer_of(server.header("authorization")), "environment@project.iam.gserviceaccount.com");
}

TEST_F(FirestoreCredentials, UnusableCredentialsInCodeAreRejectedAndNeverRepeated) {
  use(service_account());
  const std::string secret = "MIIEpAIBAAKCAQEA";
  for (const std::string& unusable :
       {secret, R"({"type":"service_account","private_key":")" + secret + "\"}",
        R"({"type":"authorized_user","refresh_token":")" + secret + "\"}",
        R"({"type":"external_account","audience":")" + secret + "\"}", R"({"type":"other","key":")" + secret + "\"}"}) {
    const auto thrown = error(client_with(unusable));
    EXPECT_EQ(thrown.code(), ErrorCode::auth_failed) << unusable;
    EXPECT_THAT(thrown.what(), AllOf(HasSubstr("FirestoreOptions::credentials"), Not(HasSubstr(secret))));
  }
  EXPECT_EQ(server.calls(), 0) << "the account of the environment is another one";
}

// ---------------------------------------------------------------------------------------------------------------------
// Impersonated service accounts

struct FirestoreImpersonation : public FirestoreCredentials {
  std::atomic<std::chrono::seconds> token_lifetime{1h};
  std::atomic<int> tokens{0};
  std::mutex mutex;
  std::string source;

  FirestoreImpersonation() {
    server.set_script([this](const std::string& method) {
      if (method != "GenerateAccessToken") return answer_missing({"locks/key"});
      {
        const std::lock_guard lock(mutex);
        source = signer_of(server.header("authorization"));
      }
      wire::GenerateAccessTokenResponse response;
      response.set_access_token("token-" + std::to_string(++tokens));
      *response.mutable_expire_time() = wire_time(system_now() + token_lifetime.load());
      return FirestoreProxy::answer({response.SerializeAsString()});
    });
  }

  [[nodiscard]] std::string impersonated(const std::string& more = "") const {
    return R"({"type":"impersonated_service_account","service_account_impersonation_url":"https://localhost:)" +
           std::to_string(server.port()) +
           R"(/v1/projects/-/serviceAccounts/robot@project.iam.gserviceaccount.com:generateAccessToken",)"
           R"("source_credentials":)" +
           service_account(R"(,"quota_project_id":"payer")", "source") + more + "}";
  }
};

TEST_F(FirestoreImpersonation, CallsAreMadeAsTheImpersonatedAccount) {
  use(impersonated(R"(,"delegates":["middle@project.iam.gserviceaccount.com"])"));
  const auto locks = client();
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(locks.is_locked("key"));
    EXPECT_EQ(server.header("authorization"), "Bearer token-1") << "a token is used until it expires";
  }
  const std::lock_guard lock(mutex);
  EXPECT_EQ(source, "source@project.iam.gserviceaccount.com");
  wire::GenerateAccessTokenRequest request;
  ASSERT_TRUE(request.ParseFromString(server.request("GenerateAccessToken")));
  EXPECT_EQ(request.name(), "projects/-/serviceAccounts/robot@project.iam.gserviceaccount.com");
  EXPECT_THAT(request.delegates(), ElementsAre("projects/-/serviceAccounts/middle@project.iam.gserviceaccount.com"));
  EXPECT_THAT(request.scope(), ElementsAre("https://www.googleapis.com/auth/cloud-platform"));
  EXPECT_EQ(request.lifetime().seconds(), 3600);
}

TEST_F(FirestoreImpersonation, TokenIsReplacedBeforeItExpires) {
  token_lifetime = 4min;
  const auto locks = client_with(impersonated());
  EXPECT_FALSE(locks.is_locked("key"));
  EXPECT_EQ(server.header("authorization"), "Bearer token-1");
  EXPECT_FALSE(locks.is_locked("key"));
  EXPECT_EQ(server.header("authorization"), "Bearer token-2");
  // While the old one is valid, a failure does no harm.
  server.set_script([](const std::string& method) {
    return method == "GenerateAccessToken" ? FirestoreProxy::refuse(grpc::StatusCode::UNAVAILABLE)
                                           : answer_missing({"locks/key"});
  });
  EXPECT_FALSE(locks.is_locked("key"));
  EXPECT_EQ(server.header("authorization"), "Bearer token-2");
}

TEST_F(FirestoreImpersonation, RejectedImpersonationIsServiceUnavailable) {
  for (const auto& reply : {FirestoreProxy::refuse(grpc::StatusCode::PERMISSION_DENIED), FirestoreProxy::answer({}),
                            FirestoreProxy::answer({""})}) {
    server.set_script([&](const std::string& method) {
      return method == "GenerateAccessToken" ? reply : answer_missing({"locks/key"});
    });
    const auto locks = client_with(impersonated());
    const auto thrown = error_of([&] { (void)locks.try_acquire("key"); });
    ASSERT_TRUE(thrown);
    EXPECT_EQ(thrown->code(), ErrorCode::service_unavailable);
    EXPECT_FALSE(thrown->in_doubt());
    EXPECT_THAT(thrown->what(), HasSubstr("access token"));
  }
  EXPECT_EQ(server.calls("BatchGetDocuments"), 0);
}

// The host would get a token of the source account.
TEST_F(FirestoreImpersonation, HostOutsideGoogleNeedsPermission) {
  FirestoreOptions options;
  options.project = "project";
  options.credentials = impersonated();
  const Locks locks(make_firestore_backend(options), with_long_timeout());
  const auto thrown = error(locks);
  EXPECT_EQ(thrown.code(), ErrorCode::auth_failed);
  EXPECT_THAT(thrown.what(), HasSubstr("allow_endpoint"));
  EXPECT_EQ(server.calls(), 0);
}

// ---------------------------------------------------------------------------------------------------------------------
// Endpoints

// Otherwise that host would get an access token.
TEST_F(FirestoreCredentials, EndpointOutsideGoogleNeedsPermission) {
  use(service_account());
  const auto address = "localhost:" + std::to_string(server.port());
  const auto lookalikes = std::vector<std::string>{address,
                                                   "googleapis.com",
                                                   "evilgoogleapis.com",
                                                   "firestore.googleapis.com.evil.example",
                                                   "firestore.googleapis.com:443@evil.example",
                                                   "firestore.googleapis.com/../evil.example",
                                                   "evil.example:443?.googleapis.com",
                                                   "dns:///evil.example",
                                                   "dns://evil.example/firestore.googleapis.com",
                                                   "ipv4:127.0.0.1:443",
                                                   "unix:/tmp/firestore.googleapis.com",
                                                   "xds:///firestore.googleapis.com",
                                                   "[::1]:443",
                                                   ""};
  for (const auto& endpoint : lookalikes) {
    FirestoreOptions options;
    options.project = "project";
    options.endpoint = endpoint;
    const auto thrown = error_of([&] { (void)make_firestore_backend(options); });
    ASSERT_TRUE(thrown) << endpoint;
    EXPECT_EQ(thrown->code(), ErrorCode::invalid_argument) << endpoint;
    EXPECT_THAT(thrown->what(), HasSubstr("endpoint")) << endpoint;
    options.allow_endpoint = "firestore.googleapis.com";
    expect_error(ErrorCode::invalid_argument, [&] { (void)make_firestore_backend(options); });
  }
  EXPECT_EQ(server.calls(), 0);
  for (const std::string endpoint : {"firestore.googleapis.com", "eur3-firestore.googleapis.com:443",
                                     "FIRESTORE.GoogleAPIs.com", "firestore-mine.p.googleapis.com"}) {
    EXPECT_FALSE(error_of([&] { (void)open("firestore://project?endpoint=" + endpoint); })) << endpoint;
  }
  for (const std::string& allowed : {std::string("localhost"), address}) {
    server.set_script([](const std::string&) { return FirestoreProxy::refuse(grpc::StatusCode::RESOURCE_EXHAUSTED); });
    auto locks = open_with_long_timeout("firestore://project?endpoint=" + address + "&allow_endpoint=" + allowed);
    expect_error(ErrorCode::rate_limited, [&] { (void)locks.is_locked("key"); });
  }
}

}  // namespace
}  // namespace syncguard::testing
