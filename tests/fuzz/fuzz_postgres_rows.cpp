// Any rows from PostgreSQL: a number only where the text is one, and tables only with names that are safe in SQL. The
// input is text; tabs separate columns, line breaks separate rows.

#include "backends/postgres/tables.hpp"
#include "scripted_peer.hpp"

#include <libpq-fe.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace syncguard;

void require(bool holds) {
  if (!holds) std::abort();
}

using testing::split;

pg_result* make_result(std::string_view text) {
  auto* const result = PQmakeEmptyPGresult(nullptr, PGRES_TUPLES_OK);
  const auto lines = split(text, '\n');
  // As many columns as the first row has. Where others have fewer, the rest is null.
  const auto columns = split(lines.front(), '\t').size();
  std::string name = "column";
  std::vector<PGresAttDesc> descriptions(columns);
  for (auto& description : descriptions) description.name = name.data();
  PQsetResultAttrs(result, static_cast<int>(columns), descriptions.data());
  for (std::size_t row = 0; row < lines.size(); ++row) {
    auto values = split(lines[row], '\t');
    for (std::size_t column = 0; column < std::min(columns, values.size()); ++column) {
      PQsetvalue(result, static_cast<int>(row), static_cast<int>(column), values[column].data(),
                 static_cast<int>(values[column].size()));
    }
  }
  return result;
}

bool is_number(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// Every quotation mark inside is doubled, so that the name ends where it should.
bool is_quoted(std::string_view name) {
  if (name.size() < 2 || !name.starts_with('"') || !name.ends_with('"')) return false;
  name = name.substr(1, name.size() - 2);
  while (!name.empty()) {
    const bool is_mark = name.front() == '"';
    if (is_mark && !name.starts_with("\"\"")) return false;
    name.remove_prefix(is_mark ? 2 : 1);
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t enough = 4096;
  if (size > enough) return 0;
  const postgres::Rows rows(make_result({reinterpret_cast<const char*>(data), size}));
  constexpr int columns = 8;
  // One more each than there may be.
  for (int row = 0; row <= rows.count(); ++row) {
    for (int column = 0; column <= columns; ++column) {
      const auto text = rows.text(row, column);
      try {
        const auto number = rows.number(row, column);
        require(is_number(text) && number == std::strtoll(text.c_str(), nullptr, 10));
      } catch (const LockError& error) {
        require(error.code() == ErrorCode::internal);
      }
    }
  }
  const postgres::Tables names("syncguard_locks", "syncguard_fence_counters");
  try {
    const auto found = postgres::find_tables(names, rows);
    if (!found.locks || !found.counters) return 0;
    require(found.locks->is_table && found.counters->is_table && found.locks->id != found.counters->id);
    require(!found.owns_queue() || found.waiters->schema == found.locks->schema);
    const auto tables = names.in_schemas(found.locks->schema, found.counters->schema);
    constexpr std::string_view table = ".\"syncguard_locks\"";
    require(found.locks->schema.empty() ||
            (tables.locks().ends_with(table) &&
             is_quoted(std::string_view(tables.locks()).substr(0, tables.locks().size() - table.size()))));
  } catch (const LockError& error) {
    require(error.code() == ErrorCode::invalid_argument);
  }
  return 0;
}
