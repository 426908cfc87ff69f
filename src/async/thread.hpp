// Threads of the library.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace syncguard::async {

// Starts a thread that blocks all signals: they belong to the application's threads. name has at most 15 characters and
// is what `top -H` shows.
std::thread start_thread(const std::string& name, std::function<void()> body);

}  // namespace syncguard::async
