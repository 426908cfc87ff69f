// The scripts in lua/, as the server knows them.
#pragma once

#include <string>
#include <string_view>

namespace syncguard::redis {

struct Script {
  // parts are put one after the other.
  explicit Script(std::initializer_list<std::string_view> parts);

  std::string text;
  // The SHA-1 of the text, by which a server that has seen it finds it.
  std::string hash;
};

// What every operation is on the server.
struct Scripts {
  const Script acquire;
  const Script release;
  const Script extend;
  const Script is_locked;
  const Script lookup_key;
  const Script lookup_id;
  const Script remove_dead;
  const Script join;
  const Script leave;
  const Script probe;
};
const Scripts& scripts();

}  // namespace syncguard::redis
