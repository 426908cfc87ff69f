// Whether a Redis server is fit for locks.
#pragma once

#include "backends/redis/reply.hpp"

#include <syncguard/diagnosis.hpp>

#include <asio/awaitable.hpp>

#include <functional>
#include <string>
#include <vector>

namespace syncguard::redis {

// How to ask it. All throw LockError where no answer comes.
struct Examiner {
  // Sends one request.
  std::function<asio::awaitable<Reply>(std::string request)> ask;
  // Runs lua/probe.lua.
  std::function<asio::awaitable<Reply>()> probe;
  // Subscribes to the channels that a waiter has, and unsubscribes again.
  std::function<asio::awaitable<void>()> subscribe;
};

// Throws LockError(aborted) only.
asio::awaitable<std::vector<Finding>> diagnose(Examiner examiner);

}  // namespace syncguard::redis
