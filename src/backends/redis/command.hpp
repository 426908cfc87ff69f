// What a Redis server is asked, as it is sent. Not by hiredis, whose sprintf showed in the benchmark.
#pragma once

#include "backends/redis/scripts.hpp"

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

namespace syncguard::redis {

using Words = std::initializer_list<std::string_view>;

std::string format_command(Words words);

// What a script is called with.
class Arguments {
 public:
  Arguments(Words keys, Words values);
  // Its keys are to be added first, then its values.
  explicit Arguments(std::size_t keys);
  void add(Words words);

  // A request to run the script: shorter for a server that has seen it, or for any.
  [[nodiscard]] std::string by_hash(const Script& script) const { return request("EVALSHA", script.hash); }
  [[nodiscard]] std::string by_text(const Script& script) const { return request("EVAL", script.text); }

 private:
  [[nodiscard]] std::string request(std::string_view command, std::string_view script) const;

  std::size_t count_ = 0;
  std::string encoded_;
};

}  // namespace syncguard::redis
