#include "backends/firestore/requests.hpp"

#include <utility>

namespace syncguard::firestore {

wire::BatchGetDocumentsRequest read_request(const std::string& database, const std::vector<std::string>& names) {
  wire::BatchGetDocumentsRequest request;
  request.set_database(database);
  for (const auto& name : names) request.add_documents(name);
  return request;
}

wire::RunQueryRequest find_request(const Names& names, const LockId& id) {
  wire::RunQueryRequest request;
  request.set_parent(names.parent());
  auto& query = *request.mutable_structured_query();
  query.add_from()->set_collection_id(names.collection_id());
  auto& filter = *query.mutable_where()->mutable_field_filter();
  filter.mutable_field()->set_field_path("lockId");
  filter.set_op(wire::StructuredQuery::FieldFilter::EQUAL);
  filter.mutable_value()->set_string_value(id.str());
  return request;
}

wire::CommitRequest commit_request(const std::string& database, std::vector<wire::Write> writes) {
  wire::CommitRequest request;
  request.set_database(database);
  for (auto& write : writes) *request.add_writes() = std::move(write);
  return request;
}

}  // namespace syncguard::firestore
