// Holds many keys at once.
#pragma once

#include "bench.hpp"

#include <exception>
#include <semaphore>
#include <stdexcept>

namespace syncguard::bench {

inline std::string numbered(const std::string& name, std::size_t number) { return name + ' ' + std::to_string(number); }

// How many operations run at a time.
constexpr int max_in_flight = 256;

// Limits them.
class InFlight {
 public:
  void begin() { free_.acquire(); }
  void end() { free_.release(); }
  // Waits until all operations have ended. None may begin afterwards.
  void wait() {
    for (int i = 0; i < max_in_flight; ++i) free_.acquire();
  }

 private:
  std::counting_semaphore<> free_{max_in_flight};
};

// Leases of the keys "NAME 0", "NAME 1" and so on.
class HeldKeys {
 public:
  HeldKeys(const Locks& locks, std::string name) : locks_(locks), name_(std::move(name)) {}
  HeldKeys(const HeldKeys&) = delete;
  HeldKeys& operator=(const HeldKeys&) = delete;
  ~HeldKeys() { release_all(); }

  void grow_to(std::size_t count) {
    const std::size_t before = leases_.size();
    leases_.resize(count);
    InFlight acquires;
    for (std::size_t i = before; i < count; ++i) {
      acquires.begin();
      locks_.async_acquire(numbered(name_, i), {.ttl = 1h},
                           [this, i, &acquires](const std::exception_ptr&, Lease lease) {
                             leases_[i] = std::move(lease);
                             acquires.end();
                           });
    }
    acquires.wait();
    if (!std::ranges::all_of(leases_, [](const Lease& lease) { return bool(lease); })) {
      throw std::runtime_error("not all keys could be locked");
    }
  }
  void release(std::size_t number) { leases_[number].release(); }
  void release_all() {
    InFlight releases;
    for (auto& lease : leases_) {
      releases.begin();
      lease.async_release([&](const std::exception_ptr&, bool) { releases.end(); });
    }
    releases.wait();
    leases_.clear();
  }

 private:
  Locks locks_;
  const std::string name_;
  std::vector<Lease> leases_;
};

}  // namespace syncguard::bench
