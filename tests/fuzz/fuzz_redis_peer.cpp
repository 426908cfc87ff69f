// A client and a peer that sends anything. The first byte of the input chooses the operation. The rest is the reply of
// the peer to each piece that it receives, separated by zeros: on the first connection from the handshake on, on later
// ones after a handshake that succeeds.

#include "scripted_peer.hpp"
#include "support/temporary_folder.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace {

namespace sg = syncguard;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const sg::testing::TemporaryFolder folder;
  static sg::testing::ScriptedPeer peer(folder.path() / "peer");
  // To HELLO, CLIENT SETNAME and INFO.
  const std::string greeting = "*0\r\n+OK\r\n$0\r\n\r\n";
  peer.play(sg::testing::split({reinterpret_cast<const char*>(data) + 1, size - 1}, '\0'), greeting,
            sg::testing::ScriptedPeer::First::scripted);
  sg::testing::run_any_operation(data[0],
                                 "redis+unix:" + (folder.path() / "peer").string() + "?operation_timeout=100ms");
  return 0;
}
