#include "backends/redis/server_address.hpp"

#include "core/durations.hpp"

#include <algorithm>
#include <utility>

namespace syncguard::redis {
namespace {

// How long to wait before another connection attempt after the given number of failures. The first attempt is
// immediate.
std::chrono::nanoseconds back_off(int failures) {
  // Bounded by the number of doublings, because delays clamped at a limit would synchronize all clients that lost the
  // same server.
  constexpr WaitOptions schedule{.retry_delay = std::chrono::milliseconds(25), .jitter = Jitter::equal};
  constexpr int max_doublings = 5;
  if (failures <= 1) return std::chrono::nanoseconds(0);
  return core::retry_delay(schedule, std::min(failures - 1, 1 + max_doublings), core::random_fraction());
}

}  // namespace

std::vector<Address> addresses_of(const RedisOptions& options) {
  std::vector<Address> addresses;
  addresses.push_back({options.host, options.port, options.unix_socket});
  for (const auto& [host, port] : options.more_addresses) addresses.push_back({host, port});
  return addresses;
}

ServerAddress::ServerAddress(const RedisOptions& options)
    : source_(options.sentinel ? Discovery::Source::sentinels : Discovery::Source::servers),
      configured_(addresses_of(options)) {}

Discovery ServerAddress::discover() const {
  if (target_) return Discovery(Discovery::Source::servers, {*target_});
  std::vector<Address> addresses;
  const auto add = [&addresses](const Address& address) {
    if (std::ranges::find(addresses, address) == addresses.end()) addresses.push_back(address);
  };
  if (origin_) add(*origin_);
  for (const auto& address : configured_) add(address);
  for (const auto& address : learned_) add(address);
  return Discovery(source_, std::move(addresses));
}

void ServerAddress::discovered(const Discovery& discovery) {
  const bool was_redirected = discovery.source() != source_ || discovery.origin() == target_;
  if (was_redirected) return;
  origin_ = discovery.origin();
  learned_ = discovery.learned();
}

void ServerAddress::lost() noexcept {
  if (source_ == Discovery::Source::sentinels) reset();
}

void ServerAddress::refused(Clock::time_point now, int failures_before) {
  failures_ = std::max(failures_, failures_before);
  failed(now);
}

void ServerAddress::failed(Clock::time_point now) {
  ++failures_;
  next_attempt_ = now + back_off(failures_);
}

}  // namespace syncguard::redis
