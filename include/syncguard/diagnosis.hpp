/// \file
/// The result of a diagnosis: whether a store is fit for locks, and how to fix it if not.
#pragma once

#include <string>

namespace syncguard {
inline namespace v0_1 {

/// The result of one check.
struct Finding {
  /// fine: nothing to do. warning: locks work, but something weakens or slows them. failure: locks do not work, or a
  /// guarantee does not hold.
  enum class Verdict { fine, warning, failure };

  Verdict verdict = Verdict::fine;
  /// A short constant such as "clock skew".
  std::string check;
  /// The finding as text. Never contains a key, a lock id or a credential.
  std::string found;
  /// What to do about it; empty if nothing.
  std::string advice;

  friend bool operator==(const Finding&, const Finding&) = default;
};

}  // namespace v0_1
}  // namespace syncguard
