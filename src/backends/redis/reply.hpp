// What a Redis server answers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

struct redisReader;

namespace syncguard::redis {

struct Reply {
  enum class Kind { nil, integer, text, status, error, array };

  Kind kind = Kind::nil;
  std::int64_t integer = 0;
  std::string text{};
  std::vector<Reply> elements{};

  [[nodiscard]] bool is_error() const noexcept { return kind == Kind::error; }
};

// The peer does not speak the protocol, or says more than we ever asked for.
class ProtocolError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Turns bytes into replies: hiredis' parser, with bounds on what a peer can make it keep. After a ProtocolError it must
// not be used any more.
class ReplyReader {
 public:
  // Of one reply. Ours have some hundred bytes, those to INFO some thousand.
  static constexpr std::size_t max_bytes = 64 * 1024;
  static constexpr int max_elements = 1024;

  ReplyReader();

  // Throws ProtocolError. At most max_bytes at once.
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
