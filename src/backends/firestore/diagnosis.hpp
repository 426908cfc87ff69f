// Whether a Firestore database is fit for locks.
#pragma once

#include "backends/firestore/database.hpp"
#include "backends/firestore/listener.hpp"

#include <syncguard/diagnosis.hpp>

#include <vector>

namespace syncguard::firestore {

// Throws LockError(aborted) only.
asio::awaitable<std::vector<Finding>> diagnose(Database& database, Listener& listener, bool is_emulator,
                                               CallLimits limits);

}  // namespace syncguard::firestore
