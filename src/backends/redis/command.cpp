#include "backends/redis/command.hpp"

namespace syncguard::redis {
namespace {

void append_length(std::string& request, std::size_t words) {
  request += '*';
  request += std::to_string(words);
  request += "\r\n";
}

void append_word(std::string& request, std::string_view word) {
  request += '$';
  request += std::to_string(word.size());
  request += "\r\n";
  request += word;
  request += "\r\n";
}

}  // namespace

std::string format_command(Words words) {
  std::string request;
  append_length(request, words.size());
  for (const auto word : words) append_word(request, word);
  return request;
}

Arguments::Arguments(Words keys, Words values) : Arguments(keys.size()) {
  add(keys);
  add(values);
}

Arguments::Arguments(std::size_t keys) {
  constexpr std::size_t usual = 512;
  encoded_.reserve(usual);
  append_word(encoded_, std::to_string(keys));
}

void Arguments::add(Words words) {
  count_ += words.size();
  for (const auto word : words) append_word(encoded_, word);
}

std::string Arguments::request(std::string_view command, std::string_view script) const {
  constexpr std::size_t more = 128;
  std::string request;
  request.reserve(encoded_.size() + script.size() + more);
  // Besides the arguments: the command, the script, and how many of them are keys.
  append_length(request, count_ + 3);
  append_word(request, command);
  append_word(request, script);
  return request += encoded_;
}

}  // namespace syncguard::redis
