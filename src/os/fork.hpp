// Detects a forked child, and keeps it from using the parent's connections.
#pragma once

#include <syncguard/error.hpp>

namespace syncguard::os {

// Increases by one in every forked child. An object that uses resources that a fork does not copy (threads, system
// locks) remembers the number at its construction: if the number differs, those resources belong to the parent. A
// process id would not work, because it can be reused. Throws std::system_error if forks cannot be detected, which only
// the first call can find out.
unsigned fork_generation();

// The process that created this object.
class OriginProcess {
 public:
  // Whether the creating process is an ancestor of this one. If so, its threads do not exist here, its timers and
  // connections must not be touched, and its mutexes may be locked forever.
  [[nodiscard]] bool is_ancestor() const noexcept { return generation_ != fork_generation(); }

  // The error of every call in a forked child.
  [[nodiscard]] static LockError refusal();
  // Throws refusal() if is_ancestor().
  void refuse_in_child() const {
    if (is_ancestor()) throw refusal();
  }

 private:
  unsigned generation_ = fork_generation();
};

// While it exists, a forked child finds the socket's descriptor disconnected: otherwise both processes would read the
// same stream and take each other's replies. Affects only children of the process that created it: in grandchildren the
// number may belong to another file. Thread-safe.
class ForkGuard {
 public:
  explicit ForkGuard(int descriptor);
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;
  ~ForkGuard();

 private:
  const int descriptor_;
  const unsigned generation_;
};

}  // namespace syncguard::os
