// What Firestore is asked for.
#pragma once

#include "backends/firestore/documents.hpp"

#include <syncguard/lock_id.hpp>

#include <string>
#include <vector>

namespace syncguard::firestore {

// The documents of these names.
wire::BatchGetDocumentsRequest read_request(const std::string& database, const std::vector<std::string>& names);
// The locks that have this id.
wire::RunQueryRequest find_request(const Names& names, const LockId& id);
// All of the writes or none.
wire::CommitRequest commit_request(const std::string& database, std::vector<wire::Write> writes);

}  // namespace syncguard::firestore
