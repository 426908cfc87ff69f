// The Redis protocol: requests as they are sent, and replies as they are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

struct redisReader;

namespace syncguard::redis {

struct Script;

using Strings = std::initializer_list<std::string_view>;

// Encodes a command and its arguments. hiredis could do this, but its sprintf was visible in the benchmark.
std::string format_command(Strings command);

// The keys and values that a script is called with.
class Arguments {
 public:
  Arguments(Strings keys, Strings values);
  // For the given number of keys. Add the keys first, then the values.
  explicit Arguments(std::size_t keys);
  void add(Strings arguments);

  // The request that runs the script: by_hash is shorter, but works only if the server already knows the script.
  [[nodiscard]] std::string by_hash(const Script& script) const;
  [[nodiscard]] std::string by_text(const Script& script) const;

 private:
  [[nodiscard]] std::string request(std::string_view command, std::string_view script) const;

  std::size_t count_ = 0;
  std::string encoded_;
};

struct Reply {
  enum class Kind { nil, integer, text, status, error, array };

  Kind kind = Kind::nil;
  std::int64_t integer = 0;
  std::string text{};
  std::vector<Reply> elements{};

  [[nodiscard]] bool is_error() const noexcept { return kind == Kind::error; }
  // In a flat list of names and values, such as the reply to HELLO: the value. Empty if the list does not have it.
  [[nodiscard]] std::string_view field(std::string_view name) const noexcept;
};

// The server does not use the protocol, or sends more than was requested.
class ProtocolError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Turns bytes into replies: hiredis' parser, with limits on the memory that a server can make it use. After a
// ProtocolError it must not be used any more.
class ReplyReader {
 public:
  // The limits of one reply. Replies of our scripts have a few hundred bytes, replies to INFO a few thousand.
  static constexpr std::size_t max_bytes = 64 * 1024;
  static constexpr int max_elements = 1024;

  ReplyReader();

  // Throws ProtocolError. At most max_bytes per call.
  void feed(std::string_view bytes);
  // The next complete reply, if there is one. Throws ProtocolError.
  std::optional<Reply> next();

 private:
  struct Free {
    void operator()(redisReader* reader) const noexcept;
  };
  std::unique_ptr<redisReader, Free> reader_;
  // How many more elements the reply that is being read may have.
  std::unique_ptr<int> elements_left_;
};

}  // namespace syncguard::redis
