#include "backends/postgres/statements.hpp"

#include "postgres_sql.hpp"

#include <utility>

namespace syncguard::postgres {

Statements::Statements(Tables resolved, Queue queue, Holder holder, FoundFunctions found_functions)
    : tables(std::move(resolved)), has_queue(queue != Queue::none) {
  const bool labeled = holder == Holder::exists;
  if (queue == Queue::exists && labeled && found_functions == FoundFunctions::usable) functions = tables.functions();
  const auto with = [&](std::string_view statement, Queue statement_arguments) {
    const bool queue_exists = statement_arguments != Queue::none;
    std::string text(statement);
    text = replaced(std::move(text), "{turn}", queue_exists ? sql::turn : sql::no_turn);
    text = replaced(std::move(text), "{leave}", queue_exists ? sql::leave_with_lock : "");
    text = replaced(std::move(text), "{pass_turn}", queue_exists ? sql::pass_turn : "");
    text = replaced(std::move(text), "{notify_next_waiter}", queue_exists ? sql::notify_next_waiter : "");
    text = replaced(std::move(text), "{waiter_count}", queue_exists ? sql::waiter_count : "NULL");
    const bool reserves = statement_arguments == Queue::exists;
    text = replaced(std::move(text), "{reservation}",
                    reserves ? "least(greatest(coalesce(waiters.reservation_ms, 50), 50), 300)" : "50");
    text = replaced(std::move(text), "{reservation_column}", reserves ? ", reservation_ms" : "");
    text = replaced(std::move(text), "{reservation_value}", reserves ? ", $3::bigint" : "");
    text =
        replaced(std::move(text), "{reservation_update}", reserves ? ", reservation_ms = excluded.reservation_ms" : "");
    text = replaced(std::move(text), "{holder_columns}", labeled ? sql::holder_columns : "");
    text = replaced(std::move(text), "{holder_values}", labeled ? sql::holder_values : "");
    text = replaced(std::move(text), "{holder_update}", labeled ? sql::holder_update : "");
    text = replaced(std::move(text), "{holder}", labeled ? sql::holder : "''");
    return tables.in(text);
  };
  const auto with_queue = [&](std::string_view statement) { return with(statement, queue); };
  timeouts = sql::timeouts;
  begin = sql::begin;
  settings = sql::settings;
  commit = sql::commit;
  lock_key = sql::lock_key;
  lock_id = tables.in(sql::lock_id);
  acquire = with_queue(sql::acquire);
  release = with_queue(sql::release);
  release_quietly = with(sql::release, Queue::none);
  extend = tables.in(sql::extend);
  lookup_key = with_queue(sql::lookup_key);
  lookup_id = with_queue(sql::lookup_id);
  list_locks = with_queue(sql::list_locks);
  inspect = with_queue(sql::inspect);
  break_lock = with_queue(sql::break_lock);
  raise_fence = tables.in(sql::raise_fence);
  remove_dead = tables.in(sql::remove_dead);
  count_expired = tables.in(sql::count_expired);
  remove_expired = tables.in(sql::remove_expired);
  clear_queue = tables.in(sql::clear_queue);
  join = with_queue(sql::join);
  leave = with_queue(sql::leave);
  seen = tables.in(sql::seen);
  purge = tables.in(sql::purge);
  lapsed = tables.in(sql::lapsed);
}

}  // namespace syncguard::postgres
