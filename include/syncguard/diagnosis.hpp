// What a backend says about itself: whether it is fit for locks, and how to mend it if not.
#pragma once

#include <string>

namespace syncguard {

// One thing that was checked.
struct Finding {
  // fine: nothing to do. warning: locks work, but something weakens or slows them. failure: locks do not work, or a
  // promise of theirs does not hold.
  enum class Verdict { fine, warning, failure };

  Verdict verdict = Verdict::fine;
  // A short constant such as "clock skew".
  std::string check;
  // What was found, in words. Never a key, a lock id or a credential.
  std::string found;
  // What to do about it; empty if nothing.
  std::string advice;

  friend bool operator==(const Finding&, const Finding&) = default;
};

}  // namespace syncguard
