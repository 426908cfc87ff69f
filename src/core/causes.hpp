// Errors with the original messages of stores and libraries as their causes.
#pragma once

#include <syncguard/error.hpp>

#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace syncguard::core {

// The store's own message becomes the error's cause, never part of our message, because it may contain anything, even
// keys.
inline LockError with_cause(ErrorCode code, const std::string& message, const std::string& cause,
                            Effect effect = Effect::none) {
  ErrorContext context;
  context.cause = std::make_exception_ptr(std::runtime_error(cause));
  return LockError(code, message, effect, std::move(context));
}

// Servers and libpq send messages of several lines.
inline std::string on_one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    if (c != '\n' && c != '\t' && c != '\r' && c != ' ') {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  if (line.ends_with(' ')) line.pop_back();
  return line;
}

// what() without the leading code.
inline std::string message_of(const LockError& error) {
  return std::string(error.what()).substr(to_string(error.code()).size() + 2);
}

// "message: cause: its cause". Unlike the message, the causes may contain anything, even identifiers.
inline std::string message_with_causes(const LockError& error) {
  std::string message = message_of(error);
  auto cause = error.context().cause;
  while (cause) {
    std::string text;
    std::exception_ptr deeper;
    try {
      std::rethrow_exception(cause);
    } catch (const LockError& inner) {
      text = message_of(inner);
      deeper = inner.context().cause;
    } catch (const std::exception& inner) {
      text = inner.what();
    } catch (...) {
      text = "an exception of unknown type";
    }
    text = on_one_line(text);
    // Some messages already quote their cause.
    if (!text.empty() && message.find(text) == std::string::npos) message += ": " + text;
    cause = deeper;
  }
  return message;
}

}  // namespace syncguard::core
