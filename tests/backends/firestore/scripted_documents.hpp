// Documents for a FirestoreProxy that answers itself.
#pragma once

#include "os/clocks.hpp"
#include "servers/firestore_proxy.hpp"

#include <syncguard/fence.hpp>
#include <syncguard/lock_id.hpp>
#include <syncguard/lock_info.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace syncguard::testing {

namespace wire = firestore::wire;

inline const std::string documents = "projects/project/databases/(default)/documents/";

inline wire::Document lock_document(std::int64_t expires_at, std::int64_t acquired_at) {
  wire::Document document;
  document.set_name(documents + "locks/key");
  document.mutable_update_time()->set_seconds(1);
  auto& fields = *document.mutable_fields();
  fields["key"].set_string_value("key");
  fields["lockId"].set_string_value(LockId::generate().str());
  fields["fence"].set_string_value(Fence(1).str());
  fields["expiresAtMs"].set_integer_value(expires_at);
  fields["acquiredAtMs"].set_integer_value(acquired_at);
  return document;
}

// The server's time in a reply.
inline wire::Timestamp wire_time(Timestamp time) {
  const auto since_1970 = time.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since_1970);
  wire::Timestamp written;
  written.set_seconds(seconds.count());
  written.set_nanos(static_cast<std::int32_t>(std::chrono::nanoseconds(since_1970 - seconds).count()));
  return written;
}
using os::system_now;

// The reply to a read of these documents, if none exists.
inline FirestoreProxy::Reply answer_missing(const std::vector<std::string>& paths) {
  std::vector<std::string> messages;
  for (const auto& path : paths) {
    wire::BatchGetDocumentsResponse response;
    response.set_missing(documents + path);
    *response.mutable_read_time() = wire_time(system_now());
    messages.push_back(response.SerializeAsString());
  }
  return FirestoreProxy::answer(std::move(messages));
}

// Answers every read with this lock, and no counter. The server's time is fixed, or that of the system.
inline FirestoreProxy::Script answer_with(const wire::Document& document, std::optional<Timestamp> time = {}) {
  return [document, time](const std::string& method) {
    const auto read_time = wire_time(time ? *time : system_now());
    if (method == "RunQuery") {
      wire::RunQueryResponse response;
      *response.mutable_document() = document;
      *response.mutable_read_time() = read_time;
      return FirestoreProxy::answer({response.SerializeAsString()});
    }
    if (method != "BatchGetDocuments") return FirestoreProxy::refuse(grpc::StatusCode::UNIMPLEMENTED);
    wire::BatchGetDocumentsResponse found;
    *found.mutable_found() = document;
    *found.mutable_read_time() = read_time;
    wire::BatchGetDocumentsResponse missing;
    missing.set_missing(documents + "fence_counters/fence:key");
    *missing.mutable_read_time() = read_time;
    return FirestoreProxy::answer({found.SerializeAsString(), missing.SerializeAsString()});
  };
}

}  // namespace syncguard::testing
