#include <syncguard/registry.hpp>

#include "core/duration.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

namespace syncguard {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw LockError(ErrorCode::invalid_argument, message); }

bool is_scheme(std::string_view text) {
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  return !text.empty() && is_letter(text.front()) && std::ranges::all_of(text, [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '+' || c == '.' || c == '-';
  });
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// A name only if it looks like one: after a ? that should have been escaped, it may be the rest of a password.
std::string shown(const std::string& name) {
  const bool is_name = std::ranges::all_of(name, [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
  return is_name ? "'" + name + "'" : "(not shown)";
}

// Only for options whose values cannot be secrets.
[[noreturn]] void refuse_value(std::string_view name, std::string_view expected, std::string_view value) {
  constexpr std::size_t longest = 40;
  refuse("the URL option '" + std::string(name) + "' is " + std::string(expected) + ", not '" +
         std::string(value.substr(0, longest)) + (value.size() > longest ? "…'" : "'"));
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
      refuse("a URL has a % that is not followed by two hexadecimal digits");
    }
    decoded += static_cast<char>(value);
    text.remove_prefix(3);
  }
  return decoded;
}

BackendUrl::BackendUrl(std::string_view text) {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos || !is_scheme(text.substr(0, colon))) {
    refuse("a backend URL begins with a scheme such as memory: (lower case, with a colon)");
  }
  scheme_ = text.substr(0, colon);
  text.remove_prefix(colon + 1);
  const auto question_mark = text.find('?');
  rest_ = text.substr(0, question_mark);
  if (question_mark == std::string_view::npos) return;

  std::string_view options = text.substr(question_mark + 1);
  while (!options.empty()) {
    const std::string_view option = options.substr(0, options.find('&'));
    options.remove_prefix(std::min(options.size(), option.size() + 1));
    const auto equals = option.find('=');
    if (equals == std::string_view::npos || equals == 0) refuse("an option in a URL is written name=value");
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
  if (!duration) refuse_value(name, "a duration such as 500ms, 30s, 5m or 1h30m", *text);
  return duration;
}

std::optional<std::int64_t> BackendUrl::take_integer(std::string_view name, std::int64_t least, std::int64_t most) {
  const auto text = take_text(name);
  if (!text) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < least || value > most) {
    refuse_value(name, "a whole number from " + std::to_string(least) + " to " + std::to_string(most), *text);
  }
  return value;
}

std::optional<bool> BackendUrl::take_flag(std::string_view name) {
  const auto text = take_text(name);
  if (!text) return std::nullopt;
  if (*text == "true") return true;
  if (*text == "false") return false;
  refuse_value(name, "true or false", *text);
}

std::map<std::string, std::string, std::less<>> BackendUrl::take_all() { return std::exchange(options_, {}); }

void BackendUrl::expect_no_more_options() const {
  if (options_.empty()) return;
  std::vector<std::string> unknown;
  for (const auto& [name, value] : options_) unknown.push_back(shown(name));
  auto known = known_;
  std::ranges::sort(known);
  refuse("unknown URL option " + join(unknown) + " for " + scheme_ + ":; known are " + join(known));
}

}  // namespace syncguard
