// Whether a Firestore database is fit for locks.
#pragma once

#include "backends/firestore/session.hpp"
#include "backends/firestore/wake_listener.hpp"

#include <syncguard/diagnosis.hpp>

#include <vector>

namespace syncguard::firestore {

// Throws only LockError(aborted).
asio::awaitable<std::vector<Finding>> diagnose(Session& session, WakeListener& wake_listener, bool is_emulator,
                                               FenceSource fences, CallLimits limits);

}  // namespace syncguard::firestore
