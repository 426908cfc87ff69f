#include <syncguard/fence_gate.hpp>

namespace syncguard {

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

}  // namespace syncguard
