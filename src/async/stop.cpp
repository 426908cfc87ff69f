#include "async/stop.hpp"

#include <algorithm>
#include <array>
#include <cassert>

namespace syncguard::async {

AnyStop::AnyStop(std::initializer_list<std::stop_token> tokens) {
  assert(tokens.size() <= 3);
  const auto possible = std::ranges::count_if(tokens, [](const auto& token) { return token.stop_possible(); });
  if (possible <= 1) {
    const auto* only = std::ranges::find_if(tokens, [](const auto& token) { return token.stop_possible(); });
    if (only != tokens.end()) token_ = *only;
    return;
  }
  const std::stop_source source;
  token_ = source.get_token();
  const std::array slots = {&first_, &second_, &third_};
  const auto* slot = slots.begin();
  for (const auto& token : tokens) {
    if (token.stop_possible()) (*slot++)->emplace(token, RequestStop{source});
  }
}

}  // namespace syncguard::async
