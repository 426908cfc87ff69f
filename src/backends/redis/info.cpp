#include "backends/redis/info.hpp"

#include <algorithm>

namespace syncguard::redis {

Info::Info(std::string_view text) {
  while (!text.empty()) {
    const auto line = text.substr(0, text.find("\r\n"));
    if (const auto colon = line.find(':'); colon != std::string_view::npos) {
      values_.emplace(line.substr(0, colon), line.substr(colon + 1));
    }
    text.remove_prefix(std::min(text.size(), line.size() + 2));
  }
}

std::string Info::value(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? "" : found->second;
}

Info::Eviction Info::eviction() const {
  const auto policy = value("maxmemory_policy");
  const auto limit = value("maxmemory");
  if (limit == "0" || policy == "noeviction") return Eviction::off;
  return policy.empty() || limit.empty() ? Eviction::unknown : Eviction::on;
}

}  // namespace syncguard::redis
