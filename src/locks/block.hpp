// Blocking calls: run an operation to its end on the calling thread.
#pragma once

#include "locks/client.hpp"

#include <syncguard/async.hpp>

#include <stop_token>
#include <utility>

namespace syncguard {
inline namespace v0_1 {
namespace detail {

template <typename Operation>
typename Operation::Result block(const ClientPtr& client, Operation operation, std::stop_token stop) {
  auto result = client->block_on(Operation::async_name, std::move(stop), [&](Caller caller) {
    return perform(client, std::move(operation), std::move(caller));
  });
  LeaseAccess::deliver(result);
  return result;
}

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
