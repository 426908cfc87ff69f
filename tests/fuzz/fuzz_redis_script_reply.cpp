// Any reply to a script, to INFO, HELLO or WAIT, or of a Sentinel: decoding it gives a value or a LockError.

#include "backends/redis/discovery.hpp"
#include "backends/redis/handshake.hpp"
#include "backends/redis/protocol.hpp"
#include "backends/redis/replica_wait.hpp"
#include "backends/redis/scripts.hpp"

#include <syncguard/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {

using namespace syncguard;
using namespace syncguard::redis;

void decode_answer_of_sentinel(const Reply& reply) {
  const auto expect_usable = [](const Address& address) {
    if (address.host.empty() || address.port == 0) std::abort();
  };
  try {
    expect_usable(master_of(reply));
  } catch (const LockError&) {  // expected
  }
  for (const auto& sentinel : sentinels_of(reply)) expect_usable(sentinel);
  // As in the reply to HELLO.
  (void)reply.field("role");
  (void)reply.field("mode");
}

void decode_answer_to_wait(const Reply& reply) {
  RedisOptions options;
  options.min_replicas = 2;
  try {
    expect_replicas(reply, options);
    if (reply.integer < 2) std::abort();
  } catch (const LockError&) {  // expected
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.size() > ReplyReader::max_bytes) return 0;
  const Info info(bytes);
  (void)info.eviction();
  (void)info.value("role");
  const auto decode = [](auto function, const Reply& reply) {
    try {
      (void)function(reply);
    } catch (const LockError& error) {
      if (error.code() != ErrorCode::internal) std::abort();
    }
  };
  ReplyReader reader;
  try {
    reader.feed(bytes);
    while (const auto reply = reader.next()) {
      decode(acquire_reply, *reply);
      decode(release_reply, *reply);
      decode(extend_reply, *reply);
      decode(is_locked_reply, *reply);
      decode(lookup_reply, *reply);
      decode(list_reply, *reply);
      decode(inspect_reply, *reply);
      decode(break_lock_reply, *reply);
      decode(raise_fence_reply, *reply);
      decode_answer_of_sentinel(*reply);
      decode_answer_to_wait(*reply);
    }
  } catch (const ProtocolError&) {  // expected
  }
  return 0;
}
