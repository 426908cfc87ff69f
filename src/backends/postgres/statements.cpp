#include "backends/postgres/statements.hpp"

#include "postgres_sql.hpp"

namespace syncguard::postgres {

Statements::Statements(const Tables& tables, Queue queue) : has_queue(queue == Queue::exists) {
  const auto with_queue = [&](std::string_view statement) {
    std::string text(statement);
    text = replaced(std::move(text), "{turn}", has_queue ? sql::turn : sql::no_turn);
    text = replaced(std::move(text), "{leave}", has_queue ? sql::leave_with_lock : "");
    text = replaced(std::move(text), "{pass_turn}", has_queue ? sql::pass_turn : "");
    return tables.in(replaced(std::move(text), "{told}", has_queue ? sql::told : ""));
  };
  begin = sql::begin;
  settings = sql::settings;
  commit = sql::commit;
  lock_key = sql::lock_key;
  lock_id = tables.in(sql::lock_id);
  acquire = with_queue(sql::acquire);
  release = with_queue(sql::release);
  extend = tables.in(sql::extend);
  lookup_key = tables.in(sql::lookup_key);
  lookup_id = tables.in(sql::lookup_id);
  remove_dead = tables.in(sql::remove_dead);
  clear_queue = tables.in(sql::clear_queue);
  join = tables.in(sql::join);
  leave = with_queue(sql::leave);
}

}  // namespace syncguard::postgres
