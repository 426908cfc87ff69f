// Errors of stores that say in words of their own what went wrong.
#pragma once

#include <syncguard/error.hpp>

#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

namespace syncguard::core {

// The store's words become the error's cause, never part of its message: they may contain anything, keys too.
inline LockError with_cause(ErrorCode code, const std::string& message, const std::string& words,
                            Effect effect = Effect::none) {
  ErrorContext context;
  context.cause = std::make_exception_ptr(std::runtime_error(words));
  return LockError(code, message, effect, std::move(context));
}

}  // namespace syncguard::core
