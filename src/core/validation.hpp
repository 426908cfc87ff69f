// Refusals of bad input, before any I/O.
#pragma once

#include <syncguard/options.hpp>

#include <chrono>

namespace syncguard::core {

// Throws LockError(invalid_argument) unless ttl is from 1 ms to 10^12 ms.
void validate_ttl(std::chrono::milliseconds ttl);

// Throws LockError(invalid_argument) naming the field that makes no sense.
void validate(const WaitOptions& options);

}  // namespace syncguard::core
