// Clients for tests.
#pragma once

#include <syncguard/syncguard.hpp>

#include <chrono>
#include <string>
#include <utility>

namespace syncguard::testing {

// What is slow here is the machine, which runs other tests beside this one. Tests of time-outs set their own, in the
// URL or the options.
inline ClientOptions patient_options(ClientOptions options = {}) {
  if (!options.operation_timeout) options.operation_timeout = std::chrono::seconds(20);
  return options;
}

inline Locks open_patiently(const std::string& url, ClientOptions options = {}) {
  return open(url, patient_options(std::move(options)));
}

}  // namespace syncguard::testing
