#include "backends/firestore/documents.hpp"

#include "core/storage_key.hpp"
#include "core/unicode.hpp"

#include <cstddef>

namespace syncguard::firestore {
namespace {

constexpr core::StorageLimit id_limit{.limit = 1500, .reserve = 0};

// As the public rules for ids of documents and collections have it.
bool is_legal_id(std::string_view id) {
  if (id.empty() || id.size() > id_limit.limit || id == "." || id == "..") return false;
  if (id.size() >= 4 && id.starts_with("__") && id.ends_with("__")) return false;
  return id.find('/') == std::string_view::npos;
}

// An id, or a path with an odd number of them: below a document, below a collection.
void check_collection(std::string_view path, const char* option) {
  const auto refuse = [option] {
    throw LockError(ErrorCode::invalid_argument,
                    std::string(option) +
                        " is the id of a Firestore collection, or a path to one such as teams/a/locks; ids are not "
                        "empty, '.', '..' or between double underscores");
  };
  if (!core::to_nfc(path) || path.find('\0') != std::string_view::npos) refuse();
  std::size_t segments = 1;
  for (;;) {
    const auto slash = path.find('/');
    if (!is_legal_id(path.substr(0, slash))) refuse();
    if (slash == std::string_view::npos) break;
    path.remove_prefix(slash + 1);
    ++segments;
  }
  if (segments % 2 == 0) refuse();
}

const wire::Value& field(const wire::Document& document, const std::string& name) {
  static const wire::Value none;
  const auto found = document.fields().find(name);
  return found == document.fields().end() ? none : found->second;
}

std::string text(const wire::Document& document, const std::string& name) {
  const auto& value = field(document, name);
  if (!value.has_string_value()) throw LockError(ErrorCode::invalid_argument, "not a string: " + name);
  return value.string_value();
}

Timestamp time(const wire::Document& document, const std::string& name) {
  const auto& value = field(document, name);
  // Far beyond any clock, and far from where arithmetic ends.
  constexpr std::int64_t latest = 1'000'000'000'000'000;
  if (!value.has_integer_value() || value.integer_value() < 0 || value.integer_value() > latest) {
    throw LockError(ErrorCode::invalid_argument, "not a time: " + name);
  }
  return Timestamp(std::chrono::milliseconds(value.integer_value()));
}

void set(wire::Document& document, const std::string& name, const std::string& value) {
  (*document.mutable_fields())[name].set_string_value(value);
}
void set(wire::Document& document, const std::string& name, Timestamp value) {
  (*document.mutable_fields())[name].set_integer_value(value.time_since_epoch().count());
}

}  // namespace

Names::Names(const std::string& database, const std::string& collection, const std::string& fence_collection) {
  check_collection(collection, "collection");
  check_collection(fence_collection, "fence_collection");
  if (collection == fence_collection) {
    throw LockError(ErrorCode::invalid_argument,
                    "collection and fence_collection are the same collection: fences would be lost");
  }
  const auto root = database + "/documents";
  locks_ = root + "/" + collection + "/";
  counters_ = root + "/" + fence_collection + "/";
  const auto slash = collection.rfind('/');
  parent_ = slash == std::string::npos ? root : root + "/" + collection.substr(0, slash);
  collection_id_ = slash == std::string::npos ? collection : collection.substr(slash + 1);
}

Names::OfKey Names::of(const Key& key) const {
  const auto id = document_id(key);
  return {.lock = locks_ + id, .counter = counters_ + core::fence_storage_key("", id, id_limit)};
}

std::string document_id(const Key& key) {
  auto id = core::lock_storage_key("", key, id_limit);
  return is_legal_id(id) ? id : core::storage_hash(id);
}

LockRecord record_of(const wire::Document& document) {
  try {
    return {.key = text(document, "key"),
            .lock_id = LockId(text(document, "lockId")),
            .expires_at = time(document, "expiresAtMs"),
            .acquired_at = time(document, "acquiredAtMs"),
            .fence = Fence::parse(text(document, "fence"))};
  } catch (const LockError&) {
    throw LockError(ErrorCode::internal, "the collection holds a document at this key that is no lock", Effect::none,
                    {.cause = std::current_exception()});
  }
}

Fence counter_of(const wire::Document& document) {
  try {
    return Fence::parse(text(document, "fence"));
  } catch (const LockError&) {
    throw LockError(ErrorCode::internal, "the key's fence counter is damaged", Effect::none,
                    {.cause = std::current_exception()});
  }
}

wire::Document lock_document(const std::string& name, const LockRecord& record) {
  wire::Document document;
  document.set_name(name);
  set(document, "lockId", record.lock_id.str());
  set(document, "expiresAtMs", record.expires_at);
  set(document, "acquiredAtMs", record.acquired_at);
  set(document, "key", record.key.str());
  set(document, "fence", record.fence.str());
  return document;
}

wire::Document counter_document(const std::string& name, Fence fence, const Key& key) {
  wire::Document document;
  document.set_name(name);
  set(document, "fence", fence.str());
  set(document, "keyDebug", key.str());
  return document;
}

wire::Write put(wire::Document document, const std::optional<wire::Document>& read) {
  wire::Write write;
  *write.mutable_update() = std::move(document);
  if (read) {
    *write.mutable_current_document()->mutable_update_time() = read->update_time();
  } else {
    write.mutable_current_document()->set_exists(false);
  }
  return write;
}

wire::Write change_expiry(const wire::Document& read, Timestamp expires_at) {
  wire::Document document;
  document.set_name(read.name());
  set(document, "expiresAtMs", expires_at);
  auto write = put(std::move(document), read);
  write.mutable_update_mask()->add_field_paths("expiresAtMs");
  return write;
}

wire::Write remove(const wire::Document& read) {
  wire::Write write;
  write.set_delete_(read.name());
  *write.mutable_current_document()->mutable_update_time() = read.update_time();
  return write;
}

Timestamp time_of(const wire::Timestamp& timestamp) {
  return Timestamp(std::chrono::seconds(timestamp.seconds()) +
                   std::chrono::floor<std::chrono::milliseconds>(std::chrono::nanoseconds(timestamp.nanos())));
}

}  // namespace syncguard::firestore
