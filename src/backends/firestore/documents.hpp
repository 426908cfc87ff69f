// What is stored in Firestore, and under which names. Shared with every other SyncGuard: see docs/firestore.md.
#pragma once

#include <syncguard/backend.hpp>

#include "firestore.pb.h"

#include <optional>
#include <string>
#include <string_view>

namespace syncguard::firestore {

// The names of documents in the two collections of a database.
class Names {
 public:
  // Throws LockError(invalid_argument) for collections that cannot be or are the same.
  Names(const std::string& database, const std::string& collection, const std::string& fence_collection);

  // A lock's document and its counter's.
  struct OfKey {
    std::string lock;
    std::string counter;
  };
  [[nodiscard]] OfKey of(const Key& key) const;

  // Where locks are queried: the document (or the root) above the collection, and the collection's own id.
  [[nodiscard]] const std::string& parent() const noexcept { return parent_; }
  [[nodiscard]] const std::string& collection_id() const noexcept { return collection_id_; }

 private:
  std::string locks_;
  std::string counters_;
  std::string parent_;
  std::string collection_id_;
};

// A document's id for a key: the key itself, or its hash where Firestore does not allow it as an id.
std::string document_id(const Key& key);

// Throws LockError(internal) for a document that is no lock: somebody else's, never to be overwritten.
LockRecord record_of(const wire::Document& document);
// Throws LockError(internal) for a document that is no counter.
Fence counter_of(const wire::Document& document);

wire::Document lock_document(const std::string& name, const LockRecord& record);
wire::Document counter_document(const std::string& name, Fence fence, const Key& key);

// Writes that take effect only if their document is still the one that was read, or still absent.
wire::Write put(wire::Document document, const std::optional<wire::Document>& read);
wire::Write change_expiry(const wire::Document& read, Timestamp expires_at);
wire::Write remove(const wire::Document& read);

Timestamp time_of(const wire::Timestamp& timestamp);

}  // namespace syncguard::firestore
