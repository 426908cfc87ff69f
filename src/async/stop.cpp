#include "async/stop.hpp"

#include <algorithm>
#include <array>

namespace syncguard::async {

AnyStop::AnyStop(const std::stop_token& first, const std::stop_token& second, const std::stop_token& third) {
  const std::array tokens = {&first, &second, &third};
  const auto can_stop = [](const std::stop_token* token) { return token->stop_possible(); };
  if (std::ranges::count_if(tokens, can_stop) <= 1) {
    const auto* only = std::ranges::find_if(tokens, can_stop);
    if (only != tokens.end()) token_ = **only;
    return;
  }
  const std::stop_source source;
  token_ = source.get_token();
  if (first.stop_possible()) first_.emplace(first, RequestStop{source});
  if (second.stop_possible()) second_.emplace(second, RequestStop{source});
  if (third.stop_possible()) third_.emplace(third, RequestStop{source});
}

}  // namespace syncguard::async
