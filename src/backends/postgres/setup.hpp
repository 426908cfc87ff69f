// The tables, indexes and functions that locks need.
#pragma once

#include "backends/postgres/tables.hpp"

#include <syncguard/postgres.hpp>

#include <string>

namespace syncguard::postgres {

// Creates missing parts, like setup_postgres_schema. Returns a message that says what was created.
std::string set_up(const PostgresOptions& options);

// Returns the SQL that creates everything. It can be run repeatedly: CREATE OR REPLACE makes that safe for functions.
std::string script_of(const Tables& tables);

}  // namespace syncguard::postgres
