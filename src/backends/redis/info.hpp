// What a Redis server says about itself.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace syncguard::redis {

// The reply to INFO: lines of name:value.
class Info {
 public:
  explicit Info(std::string_view text);

  // Empty if the server does not say.
  [[nodiscard]] std::string value(std::string_view name) const;

  // Whether it throws away what it stores when its memory is full: locks are taken from their holders, and fences begin
  // anew.
  enum class Eviction { off, on, unknown };
  [[nodiscard]] Eviction eviction() const;

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace syncguard::redis
