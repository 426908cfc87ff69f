// Any text as a URL, a duration, a fence, a lock id: taken or refused, never anything else.

#include "core/duration.hpp"

#include <syncguard/registry.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace syncguard;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto attempt = [](auto function) {
    try {
      function();
    } catch (const LockError& error) {
      if (error.code() != ErrorCode::invalid_argument) std::abort();
    }
  };
  attempt([&] {
    BackendUrl url(text);
    attempt([&] { (void)BackendUrl::decode(url.rest()); });
    attempt([&] { (void)url.take_duration("d"); });
    attempt([&] { (void)url.take_integer("i", -5, 5); });
    attempt([&] { (void)url.take_flag("f"); });
    attempt([&] { (void)make_backend(url); });
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
