// The test of a program that uses locks: it decides which requests fail.

#include <syncguard/memory.hpp>
#include <syncguard/syncguard.hpp>
#include <syncguard/testing/fault_injection.hpp>

#include <cstdio>

namespace sg = syncguard;

int main() {
  sg::testing::FaultControl faults;
  const sg::Locks locks(sg::testing::with_faults(sg::make_memory_backend(), faults));
  faults.next(sg::testing::Operation::acquire, sg::testing::Fault::fail(sg::ErrorCode::auth_failed));
  try {
    (void)locks.try_acquire("key");
    std::fputs("the request did not fail\n", stderr);
    return 1;
  } catch (const sg::LockError& error) {
    if (error.code() != sg::ErrorCode::auth_failed) return 1;
  }
  const auto lease = locks.try_acquire("key");
  return lease && faults.calls(sg::testing::Operation::acquire) == 2 ? 0 : 1;
}
