// Choosing a backend by URL.
#pragma once

#include <syncguard/backend.hpp>
#include <syncguard/export.hpp>
#include <syncguard/log.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace syncguard {

// scheme:rest?option=value&... with percent-encoding. Error messages name schemes, options and
// wrong durations, numbers and flags, but never repeat the URL itself, which may contain a password.
class SYNCGUARD_EXPORT BackendUrl {
 public:
  // Throws LockError(invalid_argument) if text is no such URL.
  explicit BackendUrl(std::string_view text);

  [[nodiscard]] const std::string& scheme() const noexcept { return scheme_; }
  // What stands between "scheme:" and the options, as it was written.
  [[nodiscard]] const std::string& rest() const noexcept { return rest_; }

  // Takes an option out, decoded. Throws LockError(invalid_argument) if the value is not of the kind asked for. A
  // duration reads 500ms, 30s, 5m or 1h30m, a flag true or false.
  std::optional<std::string> take_text(std::string_view name);
  std::optional<std::chrono::milliseconds> take_duration(std::string_view name);
  std::optional<std::int64_t> take_integer(std::string_view name, std::int64_t least, std::int64_t most);
  std::optional<bool> take_flag(std::string_view name);

  // Takes out all that are left, for a library that knows them.
  std::map<std::string, std::string, std::less<>> take_all();

  // Throws LockError(invalid_argument), naming the options that nobody took and those that are known, if any are left.
  void expect_no_more_options() const;

  // Decodes %XX. Throws LockError(invalid_argument) for a broken escape.
  static std::string decode(std::string_view text);

 private:
  std::string scheme_;
  std::string rest_;
  std::map<std::string, std::string, std::less<>> options_;
  std::vector<std::string> known_;
};

// What the client gives every backend that it makes.
struct BackendContext {
  Log log{};
  // The client's, if somebody chose one: for what a backend does with nobody waiting for it.
  std::optional<std::chrono::milliseconds> operation_timeout{};
};

// Takes what it knows out of the URL; the registry refuses what is left.
using BackendFactory = std::function<std::unique_ptr<Backend>(BackendUrl& url, const BackendContext& context)>;

// Makes a backend of your own available to open(). Replaces an earlier one of the same scheme. Any thread may call it.
SYNCGUARD_EXPORT void register_backend(std::string scheme, BackendFactory factory);

// Every scheme that open() knows, sorted.
SYNCGUARD_EXPORT std::vector<std::string> registered_schemes();

// Makes the backend of a URL. Throws LockError(invalid_argument) naming an unknown scheme, option or value together
// with what is known. Does not connect.
SYNCGUARD_EXPORT std::unique_ptr<Backend> make_backend(BackendUrl& url, const BackendContext& context = {});

}  // namespace syncguard
