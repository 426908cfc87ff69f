// A client of a memory store, with injected faults.
#pragma once

#include "support/eventually.hpp"
#include "support/expect_error.hpp"
#include "support/signal.hpp"

#include <syncguard/async.hpp>
#include <syncguard/memory.hpp>
#include <syncguard/testing/fault_injection.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

namespace syncguard::testing {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

struct FaultyClient {
  explicit FaultyClient(ClientOptions options = {})
      : locks(with_faults(make_memory_backend({.store = store}), faults), std::move(options)) {}

  std::shared_ptr<MemoryStore> store = std::make_shared<MemoryStore>();
  FaultControl faults;
  Locks locks;
};

}  // namespace syncguard::testing
