#include "backends/firestore/credentials.hpp"

#include <syncguard/error.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

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

void expect_usable_type(const std::string& type, const std::string& name) {
  constexpr std::array<std::string_view, 3> usable{"service_account", "authorized_user", "external_account"};
  if (std::ranges::find(usable, type) != usable.end()) return;
  refuse(name + " holds credentials of the type " + (is_plain(type) ? type : "(none)") +
         ", which gRPC cannot use: use a service account's key, an account that is attached to the machine, workload "
         "identity federation (external_account, which can impersonate a service account), or `gcloud auth "
         "application-default login` without impersonation");
}

void expect_project_name(const std::string& project) {
  if (!project.empty() && !is_plain(project)) {
    refuse("the quota project of the credentials is not a valid project name");
  }
}

}  // namespace

std::string check_credentials_file(std::string_view contents, const std::string& name) {
  const auto fields = nlohmann::json::parse(contents, nullptr, false);
  if (!fields.is_object()) refuse(name + " is not a Google Cloud credentials file");
  expect_usable_type(text(fields, "type"), name);
  auto project = text(fields, "quota_project_id");
  expect_project_name(project);
  return project;
}

DefaultCredentials find_default_credentials() {
  DefaultCredentials found;
  found.quota_project = environment("GOOGLE_CLOUD_QUOTA_PROJECT");
  expect_project_name(found.quota_project);
  if (const auto file = find_file()) {
    const auto project = check_credentials_file(contents_of(*file), file->name);
    if (found.quota_project.empty()) found.quota_project = project;
  }
  found.credentials = grpc::GoogleDefaultCredentials();
  if (!found.credentials) {
    refuse(
        "no Google Cloud credentials found: set GOOGLE_APPLICATION_CREDENTIALS to a key file, run `gcloud auth "
        "application-default login`, or set FIRESTORE_EMULATOR_HOST");
  }
  return found;
}

}  // namespace syncguard::firestore
