#include "command/output.hpp"

#include "command/printable.hpp"
#include "core/causes.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <system_error>

namespace syncguard::command {
namespace {

// Writes the line with one call, so that lines of several threads do not mix.
bool write_line(std::FILE* file, std::string text) {
  text += '\n';
  return std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
}

bool is_part_of_a_token(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' || c == '-';
}

// Replaces the token where it is a word of its own, not where it is part of a longer word.
std::string without_token(std::string text, const std::string& token) {
  if (token.empty()) return text;
  constexpr std::string_view hidden = "...";
  for (auto at = text.find(token); at != std::string::npos;) {
    const auto end = at + token.size();
    const bool alone =
        (at == 0 || !is_part_of_a_token(text[at - 1])) && (end == text.size() || !is_part_of_a_token(text[end]));
    if (alone) text.replace(at, token.size(), hidden);
    at = text.find(token, at + (alone ? hidden.size() : 1));
  }
  return text;
}

}  // namespace

std::string message_with_causes(const LockError& error) {
  return without_token(core::message_with_causes(error), error.context().lock_id);
}

bool Output::print(const nlohmann::ordered_json& object) const {
  // Only ASCII, because terminals also interpret C1 control characters. Messages may contain arguments that are not
  // UTF-8.
  const auto text = object.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return write_line(json_stream_ == JsonStream::out ? stdout : stderr, text);
}

bool Output::result(const nlohmann::ordered_json& object, const std::string& text) const {
  if (format_ == Format::text && text.empty()) return true;
  if (format_ == Format::json ? print(object) : write_line(stdout, text)) return true;
  const int error = errno;
  // If the reader of stderr has ended, that must not change the exit code of `run`.
  if (error == EPIPE || (format_ == Format::json && json_stream_ == JsonStream::err)) return false;
  throw LockError(ErrorCode::internal,
                  "cannot write the result to standard output: " + std::generic_category().message(error));
}

std::string Output::colored(const char* color, const std::string& text) const {
  const char* refused = std::getenv("NO_COLOR");
  if (format_ == Format::json || isatty(STDOUT_FILENO) == 0 || (refused != nullptr && *refused != '\0')) return text;
  return color + text + "\033[0m";
}

void Output::line(const std::string& text) const {
  write_line(stderr, "syncguard: " + printable(subject_) + (subject_.empty() ? "" : ": ") + printable_lines(text));
}

void Output::note(const std::string& text) const {
  if (is_interactive()) line(text);
}

void Output::detail(const std::string& text) const {
  if (verbosity_ == Verbosity::verbose) line(text);
}

void Output::error_line(const std::string& text) const {
  if (format_ == Format::text) line(text);
}

void Output::error(const LockError& error) const {
  const std::string code(to_string(error.code()));
  const auto message = message_with_causes(error);
  if (format_ == Format::json && print({{"error", {{"code", code}, {"message", message}}}})) return;
  line(message + " (" + code + ")");
}

Log Output::log() const {
  const auto write = [](LogLevel level, std::string_view message) {
    write_line(stderr, printable_lines("syncguard: " + std::string(level == LogLevel::warning ? "warning: " : "") +
                                       std::string(message)));
  };
  if (verbosity_ == Verbosity::verbose) return Log(write, LogLevel::debug);
  if (verbosity_ == Verbosity::quiet) return Log([](LogLevel, std::string_view) {}, LogLevel::warning);
  return Log(write);
}

std::string local_time(Timestamp time) {
  // Not system_clock::to_time_t, because its nanoseconds overflow for times that a store may contain.
  const std::time_t seconds = std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count();
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char text[64];
  const auto length = std::strftime(text, sizeof text, "%F %T %z", &parts);
  return {text, length};
}

}  // namespace syncguard::command
