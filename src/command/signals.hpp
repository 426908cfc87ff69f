// Signals that end the waiting.
#pragma once

#include <stop_token>

namespace syncguard::command {

// A token that is stopped by SIGINT, SIGTERM or SIGHUP. Call it once, before other threads start: it blocks those
// signals and waits for them on a thread of its own.
std::stop_token stop_on_signals();

}  // namespace syncguard::command
