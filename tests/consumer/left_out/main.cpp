// If a library was built without some backends, the others work, and errors say how to get the missing ones.
// The program does not include Asio.

#include <syncguard/sqlite.hpp>
#include <syncguard/syncguard.hpp>

#ifdef ASIO_DETAIL_CONFIG_HPP
#error the options of a backend must not need Asio
#endif

#include <cstdio>
#include <string>
#include <string_view>

namespace sg = syncguard;

namespace {

bool says_how_to_get(std::string_view url, std::string_view package, std::string_view option) {
  try {
    (void)sg::open(url);
  } catch (const sg::LockError& error) {
    const std::string_view message = error.what();
    if (error.code() == sg::ErrorCode::invalid_argument && message.find(package) != message.npos &&
        message.find(option) != message.npos) {
      return true;
    }
    std::fprintf(stderr, "unclear for %s: %s\n", url.data(), error.what());
    return false;
  }
  std::fprintf(stderr, "%s was opened\n", url.data());
  return false;
}

bool works(const sg::Locks& locks) {
  return locks.with_lock("key", {}, [](sg::Lease& lease) { return !lease.fence().str().empty(); });
}

}  // namespace

int main(int, char** arguments) {
  bool fine = works(sg::open("memory:"));
  fine = works(sg::Locks(sg::make_sqlite_backend({.path = arguments[1]}))) && fine;
  fine = says_how_to_get("firestore://p", "libgrpc++-dev", "-DSYNCGUARD_FIRESTORE=ON") && fine;
  fine = says_how_to_get("redis://x", "libhiredis-dev", "-DSYNCGUARD_REDIS=ON") && fine;
  fine = says_how_to_get("rediss://x", "libhiredis-dev", "-DSYNCGUARD_REDIS=ON") && fine;
  fine = says_how_to_get("redis+unix:/x", "libhiredis-dev", "-DSYNCGUARD_REDIS=ON") && fine;
  fine = says_how_to_get("postgres://x", "libpq-dev", "-DSYNCGUARD_POSTGRES=ON") && fine;
  fine = says_how_to_get("postgresql://x", "libpq-dev", "-DSYNCGUARD_POSTGRES=ON") && fine;
  return fine ? 0 : 1;
}
