#include <syncguard/error.hpp>
#include <syncguard/fence.hpp>

#include "core/fence_limit.hpp"

#include <algorithm>
#include <charconv>

namespace syncguard {
namespace {

constexpr std::size_t digits = 15;

}  // namespace

Fence::Fence(std::uint64_t value) : value_(value) {
  if (value > max_value) throw LockError(ErrorCode::invalid_argument, "a fence has at most 15 digits");
}

Fence Fence::parse(std::string_view text) {
  if (text.size() != digits || !std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; })) {
    throw LockError(ErrorCode::invalid_argument, "a fence is written as exactly 15 digits");
  }
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return Fence(value);
}

std::string Fence::str() const {
  std::string text = std::to_string(value_);
  return text.insert(0, digits - text.size(), '0');
}

namespace core {

LockError counter_at_end() {
  return LockError(ErrorCode::internal,
                   "the key's fence counter is at its end, 900000000000000, or damaged: use another key");
}

Fence next_fence(std::uint64_t counter) {
  if (counter >= Fence::refuse_above) throw counter_at_end();
  return Fence(counter + 1);
}

}  // namespace core
}  // namespace syncguard
