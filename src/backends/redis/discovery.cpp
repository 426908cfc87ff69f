#include "backends/redis/discovery.hpp"

#include "backends/redis/errors.hpp"
#include "core/causes.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

namespace syncguard::redis {
namespace {

// An error is permanent only if all addresses agree on it.
void merge(std::optional<LockError>& errors, const LockError& error) {
  if (!errors || errors->code() == error.code()) {
    errors = error;
  } else {
    errors = LockError(ErrorCode::service_unavailable, core::message_of(error), Effect::none, error.context());
  }
}

}  // namespace

std::optional<Address> address_of(std::string_view host, std::string_view port_text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  if (error != std::errc() || end != port_text.data() + port_text.size() || port == 0 || host.empty()) {
    return std::nullopt;
  }
  return Address{std::string(host), port};
}

Address master_of(const Reply& reply) {
  if (reply.is_error()) {
    if (reply.text.find("unknown command") == std::string::npos) throw server_error(reply.text, Effect::none);
    throw LockError(ErrorCode::invalid_argument,
                    "this server is not a Sentinel: check the addresses, or write redis:// for a server");
  }
  if (reply.kind == Reply::Kind::nil) {
    throw LockError(ErrorCode::invalid_argument,
                    "the Sentinels know no master of this name: check the name after the addresses in the URL");
  }
  const auto address =
      reply.elements.size() == 2 ? address_of(reply.elements[0].text, reply.elements[1].text) : std::nullopt;
  if (!address) throw LockError(ErrorCode::internal, "unexpected reply from a Sentinel");
  return *address;
}

std::vector<Address> sentinels_of(const Reply& reply) {
  constexpr std::size_t most = 32;
  std::vector<Address> sentinels;
  for (const auto& entry : reply.elements) {
    const auto address = address_of(entry.field("ip"), entry.field("port"));
    if (address && sentinels.size() < most) sentinels.push_back(*address);
  }
  return sentinels;
}

Discovery::Discovery(Source source, std::vector<Address> addresses)
    : source_(source), addresses_(std::move(addresses)) {}

Discovery::Step Discovery::next() const {
  if (master_) return {Action::connect, *master_};
  if (position_ == addresses_.size()) return {Action::give_up};
  const auto action = source_ == Source::sentinels ? Action::ask_sentinel : Action::connect;
  return {action, addresses_[position_]};
}

void Discovery::answered(SentinelAnswer answer) {
  learned_ = std::move(answer.others);
  if (std::ranges::find(tried_, answer.master) == tried_.end()) {
    master_ = std::move(answer.master);
  } else {
    ++position_;
  }
}

void Discovery::failed(const LockError& error) {
  const auto step = next();
  if (step.action == Action::connect) {
    tried_.push_back(step.address);
    merge(connect_error_, error);
  } else {
    merge(sentinel_error_, LockError(error.code(), "no Sentinel named a master: " + core::message_of(error),
                                     Effect::none, error.context()));
  }
  master_.reset();
  ++position_;
}

}  // namespace syncguard::redis
