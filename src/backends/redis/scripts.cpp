#include "backends/redis/scripts.hpp"

#include "core/hexadecimal.hpp"
#include "redis_lua.hpp"

#include <syncguard/error.hpp>

#include <openssl/evp.h>

#include <array>
#include <span>

namespace syncguard::redis {
namespace {

// The only hash that Redis knows scripts by. No security rests on it.
std::string sha1(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha1(), nullptr) != 1) {
    throw LockError(ErrorCode::internal, "OpenSSL has no SHA-1, by which Redis knows scripts");
  }
  return core::hexadecimal(std::span(digest).first(size));
}

}  // namespace

Script::Script(std::initializer_list<std::string_view> parts) {
  for (const auto part : parts) text += part;
  hash = sha1(text);
}

const Scripts& scripts() {
  static const Scripts all{.acquire = Script{lua::lock, lua::acquire},
                           .release = Script{lua::lock, lua::turn, lua::release},
                           .extend = Script{lua::lock, lua::extend},
                           .is_locked = Script{lua::lock, lua::is_locked},
                           .lookup_key = Script{lua::lock, lua::lookup_key},
                           .lookup_id = Script{lua::lock, lua::lookup_id},
                           .remove_dead = Script{lua::lock, lua::remove_dead},
                           .join = Script{lua::join},
                           .leave = Script{lua::turn, lua::leave},
                           .probe = Script{lua::probe}};
  return all;
}

}  // namespace syncguard::redis
