// Any bytes from a peer: reading them gives replies or a ProtocolError, within bounds.

#include "backends/redis/errors.hpp"
#include "backends/redis/protocol.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace syncguard::redis;
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.empty()) return 0;
  const auto piece = std::size_t{data[0]} + 1;
  bytes.remove_prefix(1);
  ReplyReader reader;
  try {
    while (!bytes.empty()) {
      reader.feed(bytes.substr(0, piece));
      bytes.remove_prefix(std::min(piece, bytes.size()));
      while (const auto reply = reader.next()) {
        if (reply->is_error()) {
          (void)server_error(reply->text);
          (void)moved_to(reply->text);
        }
      }
    }
  } catch (const ProtocolError&) {  // expected
  }
  return 0;
}
