/// \file
/// Selects a backend by URL.
#pragma once

#include <syncguard/backend_fwd.hpp>
#include <syncguard/error.hpp>
#include <syncguard/export.hpp>
#include <syncguard/log.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace syncguard {
inline namespace v0_1 {

/// A URL `scheme:rest?option=value&...` with percent-encoding. Error messages name schemes and options, but never
/// repeat a value or the URL itself, which may contain a password.
class SYNCGUARD_EXPORT BackendUrl {
 public:
  /// Throws LockError(invalid_argument) if text is not such a URL.
  explicit BackendUrl(std::string_view text);

  [[nodiscard]] const std::string& scheme() const noexcept { return scheme_; }
  /// The text between "scheme:" and the options, not decoded.
  [[nodiscard]] const std::string& rest() const noexcept { return rest_; }

  /// Removes an option and returns its decoded value. Throws LockError(invalid_argument) if the value does not have the
  /// requested type. A duration is written 500ms, 30s, 5m or 1h30m, a flag true or false.
  std::optional<std::string> take_text(std::string_view name);
  std::optional<std::chrono::milliseconds> take_duration(std::string_view name);
  std::optional<std::int64_t> take_integer(std::string_view name, std::int64_t minimum, std::int64_t maximum);
  std::optional<bool> take_flag(std::string_view name);
  /// One of the given values.
  std::optional<std::string> take_choice(std::string_view name, std::initializer_list<std::string_view> choices);

  /// Removes and returns all remaining options, for a library that knows them.
  std::map<std::string, std::string, std::less<>> take_all();

  /// If options remain, throws LockError(invalid_argument) that names them and the known ones.
  void expect_no_more_options() const;

  /// Decodes `%XX`. Throws LockError(invalid_argument) for an invalid escape.
  static std::string decode(std::string_view text);

 private:
  std::string scheme_;
  std::string rest_;
  std::map<std::string, std::string, std::less<>> options_;
  std::vector<std::string> known_;
};

/// The client's settings for the backend.
struct BackendContext {
  Log log{};
  /// The client's operation_timeout, if set: for background work of the backend.
  std::optional<std::chrono::milliseconds> operation_timeout{};
};

/// Removes the options it knows from the URL; the registry rejects the rest.
using BackendFactory = std::function<std::unique_ptr<Backend>(BackendUrl& url, const BackendContext& context)>;

/// Makes your own backend available to open(). Replaces an earlier one with the same scheme. Any thread may call it.
SYNCGUARD_EXPORT void register_backend(std::string scheme, BackendFactory factory);

/// Every scheme that open() knows, sorted.
SYNCGUARD_EXPORT std::vector<std::string> registered_schemes();

/// Creates the backend for a URL. Throws LockError(invalid_argument) that names an unknown scheme, option or value and
/// the known ones. Does not connect.
SYNCGUARD_EXPORT std::unique_ptr<Backend> make_backend(BackendUrl& url, const BackendContext& context = {});

}  // namespace v0_1
}  // namespace syncguard
