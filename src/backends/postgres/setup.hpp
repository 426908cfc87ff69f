// The tables, indexes and functions that locks need.
#pragma once

#include "backends/postgres/tables.hpp"

#include <syncguard/postgres.hpp>

#include <string>

namespace syncguard::postgres {

// Creates missing parts, like setup_postgres_schema. Returns a message that says what was created.
std::string set_up(const PostgresOptions& options);

// Returns the SQL that creates everything, in one transaction. It can be run repeatedly: CREATE OR REPLACE makes that
// safe for functions. The schema of a table that is named without one is public, because functions have the names of
// both tables, with their schemas, in theirs.
std::string script_of(const Tables& names);

}  // namespace syncguard::postgres
