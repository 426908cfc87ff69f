#include "backends/firestore/credentials.hpp"

#include "backends/firestore/impersonation.hpp"

#include <syncguard/error.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

namespace syncguard::firestore {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw LockError(ErrorCode::auth_failed, message); }

std::string environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): this library does not change the environment
  return value != nullptr ? value : "";
}

struct CredentialFile {
  // The name of the file in messages.
  std::string name;
  std::filesystem::path path;
};

std::optional<CredentialFile> find_file() {
  if (const auto named = environment("GOOGLE_APPLICATION_CREDENTIALS"); !named.empty()) {
    return CredentialFile{"the file that GOOGLE_APPLICATION_CREDENTIALS names", named};
  }
  const auto home = environment("HOME");
  if (home.empty()) return std::nullopt;
  const auto path = std::filesystem::path(home) / ".config/gcloud/application_default_credentials.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  return CredentialFile{"the gcloud command's application_default_credentials.json", path};
}

std::string contents_of(const CredentialFile& file) {
  // Key files have only a few kilobytes.
  constexpr std::size_t limit = 65'536;
  std::ifstream stream(file.path, std::ios::binary);
  std::string text(limit, '\0');
  if (!stream.read(text.data(), limit) && !stream.eof()) {
    refuse(file.name + " cannot be read: choose another file, or make it readable for this user");
  }
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text;
}

// Empty if the field is absent or not a string.
std::string text(const nlohmann::json& contents, const char* field) {
  const auto found = contents.find(field);
  return found != contents.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Whether the text may appear in a message or a header: no control characters, and not long.
bool is_plain(std::string_view word) {
  constexpr std::size_t limit = 128;
  return !word.empty() && word.size() <= limit &&
         std::ranges::all_of(word, [](unsigned char c) { return c > ' ' && c < 0x7f; });
}

constexpr std::string_view impersonated_account = "impersonated_service_account";
// The types that gRPC can use.
constexpr std::array<std::string_view, 3> usable_types{"service_account", "authorized_user", "external_account"};

void expect_usable_type(const std::string& type, const std::string& name) {
  if (std::ranges::find(usable_types, type) != usable_types.end()) return;
  refuse(name + " holds credentials of the type " + (is_plain(type) ? type : "(none)") +
         ", which cannot be used: use a service account's key, an account that is attached to the machine, workload "
         "identity federation (external_account), or `gcloud auth application-default login`");
}

void expect_project_name(const std::string& project) {
  if (!project.empty() && !is_plain(project)) {
    refuse("the quota project of the credentials is not a valid project name");
  }
}

// The contents of a file, checked.
nlohmann::json fields_of(std::string_view contents, const std::string& name) {
  auto fields = nlohmann::json::parse(contents, nullptr, false);
  if (!fields.is_object()) refuse(name + " is not a Google Cloud credentials file");
  if (text(fields, "type") != impersonated_account) expect_usable_type(text(fields, "type"), name);
  expect_project_name(text(fields, "quota_project_id"));
  return fields;
}

// A resource name such as projects/-/serviceAccounts/ACCOUNT.
bool is_account(std::string_view account) {
  constexpr std::string_view start = "projects/-/serviceAccounts/";
  return account.starts_with(start) && is_plain(account.substr(start.size()));
}

// Throws if a part is missing, malformed, or names a host that must not get a token.
Impersonation impersonation_of(const nlohmann::json& fields, const std::string& name) {
  constexpr std::string_view scheme = "https://";
  constexpr std::string_view version = "/v1/";
  constexpr std::string_view method = ":generateAccessToken";
  Impersonation found;
  const auto url = text(fields, "service_account_impersonation_url");
  const auto path = url.find(version, std::min(url.size(), scheme.size()));
  if (url.starts_with(scheme) && path != std::string::npos && url.ends_with(method)) {
    found.endpoint = url.substr(scheme.size(), path - scheme.size());
    found.account = url.substr(path + version.size(), url.size() - method.size() - path - version.size());
  }
  if (!host_of(found.endpoint) || !is_account(found.account)) {
    refuse(name + " impersonates a service account, but its service_account_impersonation_url is malformed");
  }
  if (const auto delegates = fields.find("delegates"); delegates != fields.end() && !delegates->is_null()) {
    for (const auto& delegate : *delegates) {
      const auto account = delegate.is_string() ? delegate.get<std::string>() : std::string();
      // gcloud writes them with or without the path.
      found.delegates.push_back(account.starts_with("projects/") ? account : "projects/-/serviceAccounts/" + account);
      if (!is_account(found.delegates.back())) refuse(name + " has malformed delegates");
    }
  }
  return found;
}

nlohmann::json source_of(const nlohmann::json& fields, const std::string& name) {
  const auto source = fields.find("source_credentials");
  if (source == fields.end() || !source->is_object()) {
    refuse(name + " impersonates a service account, but has no source_credentials");
  }
  expect_usable_type(text(*source, "type"), name + " (source_credentials)");
  expect_project_name(text(*source, "quota_project_id"));
  return *source;
}

// For the types that gRPC can use.
std::shared_ptr<grpc::CallCredentials> call_credentials(const nlohmann::json& fields, const std::string& name) {
  const auto type = text(fields, "type");
  const auto contents = fields.dump();
  auto made = type == "service_account" ? grpc::ServiceAccountJWTAccessCredentials(contents)
              : type == "authorized_user"
                  ? grpc::GoogleRefreshTokenCredentials(contents)
                  : grpc::ExternalAccountCredentials(contents, {"https://www.googleapis.com/auth/cloud-platform"});
  if (!made) refuse(name + " lacks fields that its type " + type + " needs, or its key is damaged: download it again");
  return made;
}

}  // namespace

std::optional<std::string> host_of(const std::string& endpoint) {
  const auto colon = endpoint.rfind(':');
  const bool has_port = colon != std::string::npos && !endpoint.ends_with(']');
  auto host = endpoint.substr(0, has_port ? colon : std::string::npos);
  const auto port = has_port ? std::string_view(endpoint).substr(colon + 1) : std::string_view("443");
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (port.empty() || !std::ranges::all_of(port, is_digit)) return std::nullopt;
  std::ranges::transform(host, host.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  const bool is_ipv6 = host.starts_with('[') && host.ends_with(']');
  const bool legal = !host.empty() && std::ranges::all_of(host, [&](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || c == '.' || c == '-' ||
           (is_ipv6 && (c == ':' || c == '[' || c == ']'));
  });
  return legal ? std::optional(host) : std::nullopt;
}

bool may_receive_tokens(const std::string& endpoint, const std::string& allowed) {
  const auto host = host_of(endpoint);
  return host && (host->ends_with(".googleapis.com") || allowed == endpoint || allowed == *host);
}

std::string check_credentials_file(std::string_view contents, const std::string& name) {
  const auto fields = fields_of(contents, name);
  if (text(fields, "type") == impersonated_account) {
    (void)impersonation_of(fields, name);
    (void)source_of(fields, name);
  }
  return text(fields, "quota_project_id");
}

Credentials make_credentials(std::string_view contents, const std::string& name, const std::string& allowed_endpoint) {
  Credentials made;
  made.quota_project = environment("GOOGLE_CLOUD_QUOTA_PROJECT");
  expect_project_name(made.quota_project);
  const auto fields = fields_of(contents, name);
  if (made.quota_project.empty()) made.quota_project = text(fields, "quota_project_id");
  std::shared_ptr<grpc::CallCredentials> calls;
  if (text(fields, "type") == impersonated_account) {
    auto impersonation = impersonation_of(fields, name);
    if (!may_receive_tokens(impersonation.endpoint, allowed_endpoint)) {
      refuse(name +
             " would send an access token to a host outside googleapis.com: if that is intended, repeat the host as "
             "allow_endpoint");
    }
    const auto source = source_of(fields, name);
    impersonation.source = call_credentials(source, name + " (source_credentials)");
    impersonation.quota_project = text(source, "quota_project_id");
    calls = impersonate(std::move(impersonation));
  } else {
    calls = call_credentials(fields, name);
  }
  made.channel = grpc::CompositeChannelCredentials(grpc::SslCredentials({}), calls);
  return made;
}

Credentials find_default_credentials(const std::string& allowed_endpoint) {
  if (const auto file = find_file()) return make_credentials(contents_of(*file), file->name, allowed_endpoint);
  Credentials found;
  found.quota_project = environment("GOOGLE_CLOUD_QUOTA_PROJECT");
  expect_project_name(found.quota_project);
  // The machine's metadata server.
  found.channel = grpc::GoogleDefaultCredentials();
  if (!found.channel) {
    refuse(
        "no Google Cloud credentials found: set GOOGLE_APPLICATION_CREDENTIALS to a key file, run `gcloud auth "
        "application-default login`, or set FIRESTORE_EMULATOR_HOST");
  }
  return found;
}

}  // namespace syncguard::firestore
