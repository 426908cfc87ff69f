#include "command/output.hpp"

#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <exception>
#include <iostream>

namespace syncguard::command {
namespace {

std::string words_of(const std::exception_ptr& cause) {
  try {
    if (cause) std::rethrow_exception(cause);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "of an unknown kind";
  }
  return "";
}

std::string without(std::string text, const std::string& identifier) {
  if (identifier.empty()) return text;
  const std::string hidden = "...";
  for (auto at = text.find(identifier); at != std::string::npos; at = text.find(identifier, at + hidden.size())) {
    text.replace(at, identifier.size(), hidden);
  }
  return text;
}

}  // namespace

void Output::print(const nlohmann::ordered_json& object) const {
  // Error messages may repeat what was typed, which need not be UTF-8.
  const auto text = object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  (object_on_ == ObjectOn::out ? std::cout : std::cerr) << text << std::endl;
}

void Output::result(const nlohmann::ordered_json& object, const std::string& text) const {
  if (format_ == Format::json) {
    print(object);
  } else if (!text.empty()) {
    std::cout << text << std::endl;
  }
  // What was asked for must not be lost in silence.
  if (!std::cout) throw LockError(ErrorCode::internal, "the result could not be written");
}

std::string Output::coloured(const char* colour, const std::string& text) const {
  const char* refused = std::getenv("NO_COLOR");
  if (format_ == Format::json || isatty(STDOUT_FILENO) == 0 || (refused != nullptr && *refused != '\0')) return text;
  return colour + text + "\033[0m";
}

void Output::remark(const std::string& text) const {
  if (is_for_people()) std::cerr << text << std::endl;
}

void Output::detail(const std::string& text) const {
  if (verbosity_ == Verbosity::verbose) std::cerr << "syncguard: " << text << std::endl;
}

void Output::error_line(const std::string& text) const {
  if (format_ == Format::text) std::cerr << "syncguard: " << text << std::endl;
}

void Output::error(const LockError& error) const {
  const std::string code(to_string(error.code()));
  // what() begins with the code, which the object has in a field of its own.
  const std::string message = std::string(error.what()).substr(code.size() + 2);
  if (format_ == Format::json) {
    print({{"error", {{"code", code}, {"message", message}}}});
  } else {
    error_line(message + " (" + code + ")");
  }
  // A server's own words may contain anything, and are for those alone who asked for everything.
  const auto& context = error.context();
  if (context.cause) detail("the cause: " + without(without(words_of(context.cause), context.key), context.lock_id));
}

std::string local_time(Timestamp time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char text[sizeof "2026-01-01 00:00:00"];
  const auto length = std::strftime(text, sizeof text, "%F %T", &parts);
  return {text, length};
}

}  // namespace syncguard::command
