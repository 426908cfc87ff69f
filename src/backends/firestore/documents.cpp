#include "backends/firestore/documents.hpp"

#include "core/validation.hpp"

#include <syncguard/storage_key.hpp>

#include <cstddef>
#include <tuple>
#include <utility>

namespace syncguard::firestore {

namespace {

// Firestore's documented rules for the ids of documents and collections.
bool is_legal_id(std::string_view id) {
  if (id.empty() || id.size() > firestore_storage_limit.limit || id == "." || id == "..") return false;
  if (id.size() >= 4 && id.starts_with("__") && id.ends_with("__")) return false;
  return id.find('/') == std::string_view::npos;
}

// Accepts an id, or a path with an odd number of ids (collection/document/collection).
void check_collection(std::string_view path, const char* option) {
  const auto refuse = [option] {
    throw LockError(ErrorCode::invalid_argument,
                    std::string(option) +
                        " must be the id of a Firestore collection, or a path such as teams/a/locks; an id must not be "
                        "empty, '.', '..' or enclosed in double underscores");
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
  const auto found = document.fields().find(name);
  return found == document.fields().end() ? wire::Value::default_instance() : found->second;
}

std::string text(const wire::Document& document, const std::string& name) {
  const auto& value = field(document, name);
  if (!value.has_string_value()) throw LockError(ErrorCode::invalid_argument, "not a string: " + name);
  return value.string_value();
}

Timestamp time(const wire::Document& document, const std::string& name) {
  const auto& value = field(document, name);
  // Later than any real clock, and small enough that arithmetic does not overflow.
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
  const auto parent_and_id = [&root](const std::string& path) {
    const auto slash = path.rfind('/');
    return slash == std::string::npos ? std::pair(root, path)
                                      : std::pair(root + "/" + path.substr(0, slash), path.substr(slash + 1));
  };
  std::tie(parent_, collection_id_) = parent_and_id(collection);
  std::tie(parent_of_counters_, fence_collection_id_) = parent_and_id(fence_collection);
}

Names::OfKey Names::of(const Key& key) const {
  const auto id = document_id(key);
  return {.lock = locks_ + id, .counter = counters_ + fence_storage_key("", id, firestore_storage_limit)};
}

std::string document_id(const Key& key) {
  auto id = lock_storage_key("", key, firestore_storage_limit);
  return is_legal_id(id) ? id : storage_hash(id);
}

LockRecord record_of(const wire::Document& document) {
  try {
    return {.key = text(document, "key"),
            .lock_id = LockId(text(document, "lockId")),
            .expires_at = time(document, "expiresAtMs"),
            .acquired_at = time(document, "acquiredAtMs"),
            .fence = Fence::parse(text(document, "fence")),
            .holder = core::stored_holder(field(document, "holder").string_value())};
  } catch (const LockError&) {
    throw LockError(ErrorCode::internal,
                    "the document stored for this key is not a lock: another program writes to this collection",
                    Effect::none, {.cause = std::current_exception()});
  }
}

std::string key_of(const wire::Document& document) { return field(document, "key").string_value(); }

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
  if (!record.holder.empty()) set(document, "holder", record.holder);
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

std::optional<Timestamp> time_of(const wire::Timestamp& timestamp) {
  constexpr std::int64_t end_of_year_9999 = 253'402'300'799;
  constexpr std::int32_t second = 1'000'000'000;
  if (timestamp.seconds() < 0 || timestamp.seconds() > end_of_year_9999) return std::nullopt;
  if (timestamp.nanos() < 0 || timestamp.nanos() >= second) return std::nullopt;
  return Timestamp(std::chrono::seconds(timestamp.seconds()) +
                   std::chrono::floor<std::chrono::milliseconds>(std::chrono::nanoseconds(timestamp.nanos())));
}

wire::BatchGetDocumentsRequest read_request(const std::string& database, const std::vector<std::string>& names) {
  wire::BatchGetDocumentsRequest request;
  request.set_database(database);
  for (const auto& name : names) request.add_documents(name);
  return request;
}

namespace {

using Filter = wire::StructuredQuery::FieldFilter;

wire::RunQueryRequest query_request(const Names& names, const char* field, Filter::Operator comparison) {
  wire::RunQueryRequest request;
  request.set_parent(names.parent());
  auto& query = *request.mutable_structured_query();
  query.add_from()->set_collection_id(names.collection_id());
  auto& filter = *query.mutable_where()->mutable_field_filter();
  filter.mutable_field()->set_field_path(field);
  filter.set_op(comparison);
  return request;
}

wire::Value& value_in(wire::RunQueryRequest& request) {
  return *request.mutable_structured_query()->mutable_where()->mutable_field_filter()->mutable_value();
}

}  // namespace

wire::RunQueryRequest find_request(const Names& names, const LockId& id) {
  auto request = query_request(names, "lockId", Filter::EQUAL);
  value_in(request).set_string_value(id.str());
  return request;
}

wire::RunQueryRequest expired_request(const Names& names, Timestamp before, std::size_t limit) {
  auto request = query_request(names, "expiresAtMs", Filter::LESS_THAN);
  value_in(request).set_integer_value(before.time_since_epoch().count());
  request.mutable_structured_query()->mutable_limit()->set_value(static_cast<std::int32_t>(limit));
  return request;
}

wire::RunAggregationQueryRequest count_expired_request(const Names& names, Timestamp before) {
  auto query = query_request(names, "expiresAtMs", Filter::LESS_THAN);
  value_in(query).set_integer_value(before.time_since_epoch().count());
  wire::RunAggregationQueryRequest request;
  request.set_parent(query.parent());
  auto& aggregation = *request.mutable_structured_aggregation_query();
  *aggregation.mutable_structured_query() = std::move(*query.mutable_structured_query());
  auto& count = *aggregation.add_aggregations();
  count.mutable_count();
  count.set_alias("count");
  return request;
}

wire::RunQueryRequest highest_counter_request(const Names& names) {
  wire::RunQueryRequest request;
  request.set_parent(names.parent_of_counters());
  auto& query = *request.mutable_structured_query();
  query.add_from()->set_collection_id(names.fence_collection_id());
  auto& order = *query.add_order_by();
  order.mutable_field()->set_field_path("fence");
  order.set_direction(wire::StructuredQuery::Order::DESCENDING);
  query.mutable_limit()->set_value(1);
  return request;
}

wire::RunQueryRequest list_request(const Names& names, const std::string& prefix, const std::string& cursor,
                                   std::size_t limit) {
  auto request = query_request(names, "key", cursor.empty() ? Filter::GREATER_THAN_OR_EQUAL : Filter::GREATER_THAN);
  value_in(request).set_string_value(cursor.empty() ? prefix : cursor);
  request.mutable_structured_query()->mutable_limit()->set_value(static_cast<std::int32_t>(limit));
  return request;
}

wire::CommitRequest commit_request(const std::string& database, std::vector<wire::Write> writes) {
  wire::CommitRequest request;
  request.set_database(database);
  for (auto& write : writes) *request.add_writes() = std::move(write);
  return request;
}

}  // namespace syncguard::firestore
