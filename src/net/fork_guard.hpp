// Keeping a forked child away from its parent's connections.
#pragma once

namespace syncguard::net {

// For as long as it exists, a child of a fork finds a socket's descriptor leading nowhere: both would otherwise read
// the same stream, and take each other's replies. Any thread.
class ForkGuard {
 public:
  explicit ForkGuard(int descriptor);
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;
  ~ForkGuard();

 private:
  const int descriptor_;
};

}  // namespace syncguard::net
