// How the library reaches into Locks and Lease. Not for users.
#pragma once

#include <syncguard/lease.hpp>
#include <syncguard/locks.hpp>

#include <memory>
#include <utility>

namespace syncguard::detail {

class Client;

SYNCGUARD_EXPORT std::shared_ptr<Client> client_of(const ClientHandle& handle);

struct LocksAccess {
  static std::shared_ptr<Client> client(const Locks& locks) { return client_of(*locks.handle_); }
  static Locks make(std::shared_ptr<ClientHandle> handle, std::shared_ptr<const Callbacks> callbacks) {
    return {std::move(handle), std::move(callbacks)};
  }
};

struct LeaseAccess {
  static std::shared_ptr<LeaseState> take(Lease& lease) { return std::exchange(lease.state_, nullptr); }
  static Lease make(std::shared_ptr<LeaseState> state) { return Lease(std::move(state)); }
};

}  // namespace syncguard::detail
