#include "async/stop.hpp"

namespace syncguard::async {

EitherStop::EitherStop(const std::stop_token& first, const std::stop_token& second) {
  if (!first.stop_possible() || !second.stop_possible()) {
    token_ = first.stop_possible() ? first : second;
    return;
  }
  const std::stop_source source;
  token_ = source.get_token();
  first_.emplace(first, RequestStop{source});
  second_.emplace(second, RequestStop{source});
}

}  // namespace syncguard::async
