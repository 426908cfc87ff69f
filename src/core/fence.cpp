#include <syncguard/error.hpp>
#include <syncguard/fence.hpp>
#include <syncguard/fence_gate.hpp>

#include "core/fence_limit.hpp"

#include <algorithm>
#include <charconv>
#include <ostream>

namespace syncguard {
inline namespace v0_1 {
namespace {

constexpr std::size_t digits = 15;

}  // namespace

Fence::Fence(std::uint64_t value) : value_(value) {
  if (value > max_value) throw LockError(ErrorCode::invalid_argument, "a fence has at most 15 digits");
}

Fence Fence::parse(std::string_view text) {
  if (text.size() != digits || !std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; })) {
    throw LockError(ErrorCode::invalid_argument, "a fence must be written as exactly 15 digits");
  }
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return Fence(value);
}

std::string Fence::str() const {
  std::string text = std::to_string(value_);
  return text.insert(0, digits - text.size(), '0');
}

std::ostream& operator<<(std::ostream& stream, const Fence& fence) { return stream << fence.str(); }

bool FenceGate::admit(const Key& key, Fence fence) {
  const std::lock_guard lock(mutex_);
  Fence& newest = newest_[key];
  if (fence < newest) return false;
  newest = fence;
  return true;
}

Fence FenceGate::newest(const Key& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = newest_.find(key);
  return found == newest_.end() ? Fence() : found->second;
}

}  // namespace v0_1

namespace core {

LockError counter_at_end() {
  return LockError(ErrorCode::internal,
                   "the key's fence counter is exhausted (900000000000000) or damaged: use another key");
}

Fence fence_of_counter(std::uint64_t counter) {
  if (counter > Fence::max_value) throw counter_at_end();
  return Fence(counter);
}

Fence next_fence(std::uint64_t counter, std::uint64_t floor) {
  if (counter >= Fence::refuse_above) throw counter_at_end();
  return Fence(std::max(counter + 1, floor));
}

}  // namespace core
}  // namespace syncguard
