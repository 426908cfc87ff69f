// Validates input before any I/O.
#pragma once

#include <syncguard/error.hpp>
#include <syncguard/options.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace syncguard::core {

// Throws LockError(invalid_argument).
[[noreturn]] inline void refuse(const std::string& message) { throw LockError(ErrorCode::invalid_argument, message); }

// Throws LockError(invalid_argument) unless ttl is from min_ttl to max_ttl.
void validate_ttl(std::chrono::milliseconds ttl);

// Throws LockError(invalid_argument) with the name of the invalid field.
void validate(const WaitOptions& options);

// Whether text can be the label of a holder: at most ClientOptions::max_holder_bytes of UTF-8 without control
// characters.
bool is_holder(std::string_view text);
// Throws LockError(invalid_argument) unless is_holder(text).
void validate_holder(std::string_view text);
// The label that a store contains. Other programs can write there: anything that cannot be a label counts as none.
std::string stored_holder(std::string text);

// Returns text in normalization form C, or nullopt if it is not valid UTF-8.
std::optional<std::string> to_nfc(std::string_view text);

}  // namespace syncguard::core
