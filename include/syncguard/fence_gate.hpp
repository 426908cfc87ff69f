/// \file
/// Protects a resource from holders that have not yet noticed that they lost their lock.
#pragma once

#include <syncguard/export.hpp>
#include <syncguard/fence.hpp>
#include <syncguard/key.hpp>

#include <cstddef>
#include <mutex>
#include <unordered_map>

namespace syncguard {
inline namespace v0_1 {

/// Admits a fence only if it is not older than the newest it has seen for that key. For resources that live in one
/// process; a database does the same with `WHERE fence <= :fence`. Thread-safe.
class SYNCGUARD_EXPORT FenceGate {
 public:
  /// Whether the holder of this fence may use the resource. Also true if the same fence is presented again: one holder
  /// may write many times.
  [[nodiscard]] bool admit(const Key& key, Fence fence);

  /// The newest fence seen for key; Fence() if none was.
  [[nodiscard]] Fence newest(const Key& key) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<Key, Fence> newest_;
};

}  // namespace v0_1
}  // namespace syncguard
