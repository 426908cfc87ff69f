// The lifetime of OpenSSL.
#pragma once

#include <syncguard/error.hpp>

#include <openssl/crypto.h>

namespace syncguard::core {

// Called before the first use of OpenSSL. Without it, OpenSSL would free its objects when the process exits, and static
// objects that are destroyed later could not release their locks. No effect if the application has initialized OpenSSL.
inline void init_openssl() {
  if (OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr) == 1) return;
  throw LockError(
      ErrorCode::internal,
      "OpenSSL cannot be used any more: the process is exiting, and has cleaned it up. Open clients earlier");
}

}  // namespace syncguard::core
