// Any bytes as a document from Firestore: reading it gives a lock, a counter or LockError(internal).

#include "backends/firestore/documents.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace syncguard;
  firestore::wire::Document document;
  if (!document.ParseFromArray(data, static_cast<int>(size))) return 0;
  const auto attempt = [](auto read) {
    try {
      read();
    } catch (const LockError& error) {
      if (error.code() != ErrorCode::internal) std::abort();
    }
  };
  attempt([&] {
    if (firestore::record_of(document).key.str().empty()) std::abort();
  });
  attempt([&] { (void)firestore::counter_of(document); });
  attempt([&] { (void)firestore::time_of(document.update_time()); });
  return 0;
}
