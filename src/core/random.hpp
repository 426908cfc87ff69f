// Chance, so that clients which begin together do not go on in step.
#pragma once

#include <chrono>
#include <random>

namespace syncguard::core {

// From [0, 1). From the system, not from a seeded generator: after a fork, siblings would draw the same for ever.
inline double random_fraction() {
  std::random_device device;
  return std::generate_canonical<double, 32>(device);
}

template <typename Duration>
Duration random_between(Duration shortest, Duration longest) {
  return shortest + std::chrono::duration_cast<Duration>((longest - shortest) * random_fraction());
}

}  // namespace syncguard::core
