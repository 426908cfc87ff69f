// Expects a LockError.
#pragma once

#include <syncguard/error.hpp>

#include <gtest/gtest.h>

#include <optional>
#include <utility>

namespace syncguard::testing {

// The LockError that function throws; nullopt if it throws none.
template <typename Function>
std::optional<LockError> error_of(Function&& function) {
  try {
    std::forward<Function>(function)();
  } catch (const LockError& error) {
    return error;
  }
  return std::nullopt;
}

template <typename Function>
void expect_error(ErrorCode code, Function&& function) {
  const auto error = error_of(std::forward<Function>(function));
  ASSERT_TRUE(error) << "expected " << to_string(code) << ", but nothing was thrown";
  EXPECT_EQ(error->code(), code) << error->what();
}

}  // namespace syncguard::testing
