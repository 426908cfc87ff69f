// For any responses on a Listen stream, the waiters of a document that is reported deleted are woken, nothing else is
// called, and the bookkeeping stays consistent. The input is a list of responses, each after a byte with its length; a
// length of zero adds or removes a waiter instead.

#include "backends/firestore/watches.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace {

using namespace syncguard;
using firestore::Watches;

void require(bool holds) {
  if (!holds) std::abort();
}

const std::string documents[] = {"a", "b"};
const LockId waiters[] = {LockId("AAAAAAAAAAAAAAAAAAAAAA"), LockId("BAAAAAAAAAAAAAAAAAAAAA")};

std::size_t waiters_of(const Watches& watches, const std::string& document) {
  const auto* const watch = watches.find(document);
  return watch == nullptr ? 0 : watch->waiters.size();
}

// The document that the response reports as deleted; empty if it does not.
std::string deleted_document(const firestore::wire::ListenResponse& response) {
  if (response.has_document_delete()) return response.document_delete().document();
  return response.has_document_remove() ? response.document_remove().document() : "";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  Watches watches;
  int calls = 0;
  std::size_t turn = 0;
  for (const auto& waiter : waiters) watches.add(documents[0], waiter, [&calls] { ++calls; });
  while (!rest.empty()) {
    const std::size_t length = static_cast<unsigned char>(rest.front());
    rest.remove_prefix(1);
    if (length == 0) {
      const auto& document = documents[turn / 2 % 2];
      const auto& waiter = waiters[turn / 4 % 2];
      if (turn++ % 2 == 0) {
        const auto [watch, is_new] = watches.add(document, waiter, [&calls] { ++calls; });
        require(watch.target > 0 && watch.waiters.contains(waiter) && (!is_new || !watch.is_active));
      } else {
        const bool was_last = waiters_of(watches, document) == 1 && watches.find(document)->waiters.contains(waiter);
        require(watches.remove(document, waiter).has_value() == was_last);
      }
      continue;
    }
    const auto message = rest.substr(0, length);
    rest.remove_prefix(message.size());
    firestore::wire::ListenResponse response;
    if (!response.ParseFromArray(message.data(), static_cast<int>(message.size()))) continue;
    const auto waiting = waiters_of(watches, documents[0]) + waiters_of(watches, documents[1]);
    const auto deleted = deleted_document(response);
    const auto concerned = waiters_of(watches, deleted);
    const auto wakes = watches.received(response, {});
    require(wakes.size() <= waiting);
    if (!deleted.empty()) require(wakes.size() == concerned);
    calls = 0;
    for (const auto& wake : wakes) wake();
    require(std::cmp_equal(calls, wakes.size()));
    for (const auto& document : documents) {
      const auto* const watch = watches.find(document);
      require(watch == nullptr || (!watch->waiters.empty() && watch->decided.is_set() == watch->is_active));
    }
  }
  const auto wakes = watches.end_all();
  require(wakes.size() <= std::size(documents) * std::size(waiters));
  require(watches.find(documents[0]) == nullptr && watches.find(documents[1]) == nullptr);
  return 0;
}
