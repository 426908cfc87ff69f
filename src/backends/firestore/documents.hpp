// The documents that are stored in Firestore, their names, and the requests for them. The format is the same in all
// SyncGuard libraries: see docs/firestore.md.
#pragma once

#include "firestore.pb.h"

#include <syncguard/backend.hpp>
#include <syncguard/lock_id.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace syncguard::firestore {

// The names of documents in the two collections of a database.
class Names {
 public:
  // Throws LockError(invalid_argument) if a collection is invalid, or if both are the same.
  Names(const std::string& database, const std::string& collection, const std::string& fence_collection);

  // The documents of a lock and of its counter.
  struct OfKey {
    std::string lock;
    std::string counter;
  };
  [[nodiscard]] OfKey of(const Key& key) const;

  // Where locks are queried: the document (or the root) above the collection, and the collection's own id.
  [[nodiscard]] const std::string& parent() const noexcept { return parent_; }
  [[nodiscard]] const std::string& collection_id() const noexcept { return collection_id_; }
  // The same for counters.
  [[nodiscard]] const std::string& parent_of_counters() const noexcept { return parent_of_counters_; }
  [[nodiscard]] const std::string& fence_collection_id() const noexcept { return fence_collection_id_; }

 private:
  std::string locks_;
  std::string counters_;
  std::string parent_;
  std::string collection_id_;
  std::string parent_of_counters_;
  std::string fence_collection_id_;
};

// The id of the document of a key: the key itself, or its hash if Firestore does not allow the key as an id.
std::string document_id(const Key& key);

// Throws LockError(internal) for a document that is not a lock: it belongs to another program and is never overwritten.
LockRecord record_of(const wire::Document& document);
// The user's key; empty if there is none.
std::string key_of(const wire::Document& document);
// Throws LockError(internal) for a document that is not a counter.
Fence counter_of(const wire::Document& document);

wire::Document lock_document(const std::string& name, const LockRecord& record);
wire::Document counter_document(const std::string& name, Fence fence, const Key& key);

// Writes that take effect only if the document has not changed since it was read, or is still absent.
wire::Write put(wire::Document document, const std::optional<wire::Document>& read);
wire::Write change_expiry(const wire::Document& read, Timestamp expires_at);
wire::Write remove(const wire::Document& read);

// Returns nullopt for an invalid time.
std::optional<Timestamp> time_of(const wire::Timestamp& timestamp);

// Reads the documents with these names.
wire::BatchGetDocumentsRequest read_request(const std::string& database, const std::vector<std::string>& names);
// Finds the locks with this id.
wire::RunQueryRequest find_request(const Names& names, const LockId& id);
// Finds locks that expired before the given time, oldest first.
wire::RunQueryRequest expired_request(const Names& names, Timestamp before, std::size_t limit);
// Counts them, under the name `count`.
wire::RunAggregationQueryRequest count_expired_request(const Names& names, Timestamp before);
// Finds the highest counter.
wire::RunQueryRequest highest_counter_request(const Names& names);
// Finds locks in the order of their keys: after the cursor, or from the prefix on if the cursor is empty.
wire::RunQueryRequest list_request(const Names& names, const std::string& prefix, const std::string& cursor,
                                   std::size_t limit);
// Applies all writes or none.
wire::CommitRequest commit_request(const std::string& database, std::vector<wire::Write> writes);

}  // namespace syncguard::firestore
