#include "backends/postgres/statements.hpp"

#include "postgres_sql.hpp"

#include <utility>

namespace syncguard::postgres {

Statements::Statements(Tables resolved, const FoundTables& found, FoundFunctions found_functions)
    : tables(std::move(resolved)) {
  if (found_functions == FoundFunctions::usable && found.suit_functions()) functions = tables.functions();
  const auto in = [&](std::string_view statement) {
    std::string text(statement);
    text = replaced(std::move(text), "{holder}", found.locks->has_holder ? sql::holder : "''");
    text = replaced(std::move(text), "{waiter_count}", functions ? sql::waiter_count : "NULL");
    return tables.in(text);
  };
  timeouts = sql::timeouts;
  begin = sql::begin;
  settings = sql::settings;
  commit = sql::commit;
  lock_key = sql::lock_key;
  lock_id = in(sql::lock_id);
  acquire = in(sql::acquire);
  release = in(sql::release);
  extend = in(sql::extend);
  lookup_key = in(sql::lookup_key);
  lookup_id = in(sql::lookup_id);
  list_locks = in(sql::list_locks);
  inspect = in(sql::inspect);
  break_lock = in(sql::break_lock);
  raise_fence = in(sql::raise_fence);
  remove_dead = in(sql::remove_dead);
  count_expired = in(sql::count_expired);
  remove_expired = in(sql::remove_expired);
}

std::string array_of(const Values& texts) {
  std::string array = "{";
  for (const auto& text : texts) {
    if (array.size() > 1) array += ',';
    array += '"';
    for (const char c : text) {
      if (c == '"' || c == '\\') array += '\\';
      array += c;
    }
    array += '"';
  }
  return array += '}';
}

}  // namespace syncguard::postgres
