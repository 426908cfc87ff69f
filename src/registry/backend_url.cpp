#include <syncguard/registry.hpp>

#include "core/durations.hpp"
#include "core/validation.hpp"

#include <algorithm>
#include <charconv>
#include <set>
#include <system_error>
#include <utility>

namespace syncguard {
inline namespace v0_1 {
namespace {

using core::refuse;

bool is_scheme(std::string_view text) {
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  return !text.empty() && is_letter(text.front()) && std::ranges::all_of(text, [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '+' || c == '.' || c == '-';
  });
}

template <typename Names>
std::string join(const Names& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Shows only text that looks like an option name: after an unescaped ?, it may be the rest of a password.
std::string shown(const std::string& name) {
  const bool is_name = std::ranges::all_of(name, [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
  return is_name ? "'" + name + "'" : "(not shown)";
}

// Does not show the value: after an unescaped character, it may be the rest of a password.
[[noreturn]] void refuse_value(std::string_view name, std::string_view expected) {
  refuse("the URL option '" + std::string(name) + "' must be " + std::string(expected));
}

// Rejects URLs that would be split in the wrong places: part of a password would become a host or a port, and appear in
// a message. before_options is the text between the scheme and the first question mark.
void refuse_unescaped(std::string_view before_options, std::string_view options) {
  constexpr const char* advice =
      "the URL contains a character in its user, password or path that must be escaped: % as %25, / as %2F, ? as %3F, "
      "@ as "
      "%40";
  if (!before_options.starts_with("//")) return;
  before_options.remove_prefix(2);
  const auto authority = before_options.substr(0, before_options.find('/'));
  const auto path = before_options.substr(authority.size());
  if (authority.empty()) return;
  if (std::ranges::count(authority, '@') > 1 || path.find('@') != std::string_view::npos) refuse(advice);
  if (authority.find('@') != std::string_view::npos) {
    (void)BackendUrl::decode(authority);
    return;
  }
  // Detects user:pass?word=x@host. An @ in the options alone proves nothing, and the colons of a bracketed address do
  // not separate a port.
  const auto host = authority.substr(authority.rfind(',') + 1);
  const auto colon = host.starts_with('[') ? std::string_view::npos : host.find(':');
  if (colon == std::string_view::npos || options.find('@') == std::string_view::npos) return;
  if (host.find_first_not_of("0123456789", colon + 1) != std::string_view::npos) refuse(advice);
}

}  // namespace

std::string BackendUrl::decode(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  while (!text.empty()) {
    if (text.front() != '%') {
      decoded += text.front();
      text.remove_prefix(1);
      continue;
    }
    unsigned value = 0;
    const char* const digits = text.data() + 1;
    if (text.size() < 3 || std::from_chars(digits, digits + 2, value, 16).ptr != digits + 2) {
      refuse("the URL contains a % that is not followed by two hexadecimal digits");
    }
    // The system and C libraries would end a path or a name there.
    if (value == 0) refuse("the URL contains %00, which no path, name or password may contain");
    decoded += static_cast<char>(value);
    text.remove_prefix(3);
  }
  return decoded;
}

BackendUrl::BackendUrl(std::string_view text) {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos || !is_scheme(text.substr(0, colon))) {
    refuse("a backend URL must begin with a scheme such as memory: (lower case, with a colon)");
  }
  scheme_ = text.substr(0, colon);
  text.remove_prefix(colon + 1);
  const auto question_mark = text.find('?');
  rest_ = text.substr(0, question_mark);
  refuse_unescaped(rest_, question_mark == std::string_view::npos ? "" : text.substr(question_mark + 1));
  if (question_mark == std::string_view::npos) return;

  std::string_view options = text.substr(question_mark + 1);
  while (!options.empty()) {
    const std::string_view option = options.substr(0, options.find('&'));
    options.remove_prefix(std::min(options.size(), option.size() + 1));
    const auto equals = option.find('=');
    if (equals == std::string_view::npos || equals == 0) refuse("a URL option must be written name=value");
    auto name = decode(option.substr(0, equals));
    if (!options_.try_emplace(name, decode(option.substr(equals + 1))).second) {
      refuse("the URL option " + shown(name) + " is given twice");
    }
  }
}

std::optional<std::string> BackendUrl::take_text(std::string_view name) {
  known_.emplace_back(name);
  const auto found = options_.find(name);
  if (found == options_.end()) return std::nullopt;
  return std::move(options_.extract(found).mapped());
}

std::optional<std::chrono::milliseconds> BackendUrl::take_duration(std::string_view name) {
  const auto text = take_text(name);
  if (!text) return std::nullopt;
  const auto duration = core::parse_duration(*text);
  if (!duration) refuse_value(name, "a duration such as 500ms, 30s, 5m, 1h30m or 1d");
  return duration;
}

std::optional<std::int64_t> BackendUrl::take_integer(std::string_view name, std::int64_t minimum,
                                                     std::int64_t maximum) {
  const auto text = take_text(name);
  if (!text) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < minimum || value > maximum) {
    refuse_value(name, "a whole number from " + std::to_string(minimum) + " to " + std::to_string(maximum));
  }
  return value;
}

std::optional<bool> BackendUrl::take_flag(std::string_view name) {
  const auto text = take_text(name);
  if (!text) return std::nullopt;
  if (*text == "true") return true;
  if (*text == "false") return false;
  refuse_value(name, "true or false");
}

std::optional<std::string> BackendUrl::take_choice(std::string_view name,
                                                   std::initializer_list<std::string_view> choices) {
  auto text = take_text(name);
  if (!text || std::ranges::find(choices, *text) != choices.end()) return text;
  std::string expected;
  for (const auto choice : choices) expected += (expected.empty() ? "" : " or ") + std::string(choice);
  refuse_value(name, expected);
}

std::map<std::string, std::string, std::less<>> BackendUrl::take_all() { return std::exchange(options_, {}); }

void BackendUrl::expect_no_more_options() const {
  if (options_.empty()) return;
  std::vector<std::string> unknown;
  for (const auto& [name, value] : options_) unknown.push_back(shown(name));
  // A set, because the client and the backend both take operation_timeout.
  const std::set<std::string> known(known_.begin(), known_.end());
  refuse("unknown URL option " + join(unknown) + " for " + scheme_ + ":; known are " + join(known));
}

}  // namespace v0_1
}  // namespace syncguard
