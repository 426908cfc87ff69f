// Any text as a URL, a duration, a fence or a lock id is accepted or rejected with a LockError. A zero byte behind the
// scheme marks the place of a secret, which no message contains.

#include "core/durations.hpp"

#include <syncguard/fence.hpp>
#include <syncguard/lock_id.hpp>
#include <syncguard/registry.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace syncguard;
  constexpr std::string_view secret = "hunter2!";
  std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto place = text.find('\0'); place != std::string::npos && text.find(':') < place) {
    text.replace(place, 1, secret);
  }
  const auto attempt = [&](auto function) {
    try {
      function();
    } catch (const LockError& error) {
      if (error.code() != ErrorCode::invalid_argument) std::abort();
      if (std::string_view(error.what()).find(secret) != std::string_view::npos) std::abort();
    }
  };
  attempt([&] {
    BackendUrl url(text);
    attempt([&] { (void)BackendUrl::decode(url.rest()); });
    attempt([&] { (void)url.take_duration("d"); });
    attempt([&] { (void)url.take_integer("i", -5, 5); });
    attempt([&] { (void)url.take_flag("f"); });
    // Stores in memory that have a name are kept for as long as the process runs.
    if (url.scheme() != "memory" || url.rest().empty()) attempt([&] { (void)make_backend(url); });
  });
  attempt([&] {
    if (Fence::parse(text).str() != text) std::abort();
  });
  attempt([&] {
    if (LockId(text).view() != text) std::abort();
  });
  if (const auto duration = core::parse_duration(text); duration && duration->count() < 0) std::abort();
  return 0;
}
