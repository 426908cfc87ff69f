// The library's access to private members of Lease. Not for users.
#pragma once

#include <syncguard/lease.hpp>

#include <memory>
#include <utility>

namespace syncguard {
inline namespace v0_1 {
namespace detail {

struct LeaseAccess {
  static std::shared_ptr<LeaseState> take(Lease& lease) { return std::exchange(lease.state_, nullptr); }
  static Lease make(std::shared_ptr<LeaseState> state) { return Lease(std::move(state)); }
};

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
