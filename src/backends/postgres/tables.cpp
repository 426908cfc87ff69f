#include "backends/postgres/tables.hpp"

#include "backends/verdict.hpp"
#include "core/encodings.hpp"
#include "core/validation.hpp"
#include "postgres_sql.hpp"

#include <algorithm>
#include <initializer_list>
#include <tuple>
#include <utility>

namespace syncguard::postgres {
namespace {

using core::refuse;

bool is_identifier(std::string_view text) {
  // PostgreSQL would truncate the index names of longer tables, and two of them could become equal.
  constexpr std::size_t max_length = 51;
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !text.empty() && text.size() <= max_length && is_letter(text.front()) &&
         std::ranges::all_of(text, [&](char c) { return is_letter(c) || is_digit(c); });
}

using Name = Tables::Name;

Name parse(const std::string& text, const char* option) {
  const auto dot = text.find('.');
  Name name{.schema = dot == std::string::npos ? "" : text.substr(0, dot),
            .table = dot == std::string::npos ? text : text.substr(dot + 1)};
  if ((dot != std::string::npos && !is_identifier(name.schema)) || !is_identifier(name.table)) {
    refuse(std::string(option) +
           " must be a table name of letters, digits and underscores, at most 51 bytes, optionally with a schema");
  }
  return name;
}

// Names from the server may contain anything.
std::string quoted(const std::string& identifier) { return '"' + replaced(identifier, "\"", "\"\"") + '"'; }

std::string quoted(const Name& name, const std::string& suffix = "") {
  return (name.schema.empty() ? "" : quoted(name.schema) + ".") + quoted(name.table + suffix);
}

}  // namespace

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

Tables::Tables(const std::string& locks, const std::string& counters)
    : Tables(parse(locks, "table"), parse(counters, "fence_table")) {
  if (locks_ == counters_ || waiters_ == counters_) {
    refuse("locks and fence counters need separate tables: table and fence_table must differ");
  }
}

Tables::Tables(Name locks, Name counters)
    : locks_name_(std::move(locks)),
      counters_name_(std::move(counters)),
      locks_(quoted(locks_name_)),
      counters_(quoted(counters_name_)),
      waiters_(quoted(locks_name_, "_waiters")) {}

Tables Tables::in_schemas(const std::string& of_locks, const std::string& of_counters) const {
  return {Name{.schema = of_locks, .table = locks_name_.table},
          Name{.schema = of_counters, .table = counters_name_.table}};
}

std::string Tables::in(std::string_view statement) const {
  std::string text(statement);
  text = replaced(std::move(text), "{else_why_not}", sql::else_why_not);
  text = replaced(std::move(text), "{discarded}", sql::discarded);
  for (const auto& [name, value] : backends::constants) {
    text = replaced(std::move(text), "{" + std::string(name) + "}", std::to_string(value));
  }
  text = replaced(std::move(text), "{now}", sql::now);
  text = replaced(std::move(text), "{clock_fence}", sql::clock_fence);
  text = replaced(std::move(text), "{locks}", locks_);
  text = replaced(std::move(text), "{counters}", counters_);
  text = replaced(std::move(text), "{waiters}", waiters_);
  text = replaced(std::move(text), "{lock_id_index}", quoted("idx_" + locks_name_.table + "_lock_id"));
  text = replaced(std::move(text), "{expires_index}", quoted("idx_" + locks_name_.table + "_expires"));
  text = replaced(std::move(text), "{queue_index}", quoted("idx_" + locks_name_.table + "_queue"));
  return replaced(std::move(text), "{place_index}", quoted("idx_" + locks_name_.table + "_place"));
}

Tables::Functions Tables::functions() const {
  // An installed function is never changed: a change needs the next version.
  constexpr std::string_view version = "v5";
  constexpr std::size_t hash_length = 24;
  const auto hash = core::hexadecimal(core::sha256(locks_ + "," + counters_)).substr(0, hash_length);
  const auto function = [&](const std::string& operation, std::initializer_list<std::string_view> arguments,
                            std::string_view create) {
    const auto name =
        quoted(locks_name_.schema) + "." + quoted("syncguard_" + operation + "_" + std::string(version) + "_" + hash);
    std::string types;
    std::string values;
    for (const auto type : arguments) {
      const std::string separator = types.empty() ? "" : ", ";
      types += separator + std::string(type);
      values +=
          separator + "$" + std::to_string(1 + std::ranges::count(values, '$')) + "::pg_catalog." + std::string(type);
    }
    // Parts that contain other parts come first.
    auto text = replaced(std::string(create), "{check_transaction}", sql::check_transaction);
    text = replaced(std::move(text), "{settings}", sql::function_settings);
    text = replaced(std::move(text), "{find_held_lock}", sql::find_held_lock);
    text = replaced(std::move(text), "{raise_discarded}", sql::raise_discarded);
    text = replaced(std::move(text), "{pass}", sql::pass);
    text = replaced(std::move(text), "{topic}", sql::topic);
    text = replaced(std::move(text), "{doubt}", sql::doubt);
    text = replaced(std::move(text), "{is_first}", sql::is_first);
    text = replaced(std::move(text), "{is_pending}", sql::is_pending);
    // The dollar quote must not occur in the function's text, which contains table names. A name cannot contain its own
    // hash.
    text = replaced(std::move(text), "$function$", "$syncguard_" + hash + "$");
    text = replaced(std::move(text), "{" + operation + "_function}", name);
    return Function{.signature = name + "(" + types + ")",
                    .call = "SELECT * FROM " + name + "(" + values + ")",
                    .create = in(text)};
  };
  return {.acquire = function("acquire", {"text", "text", "int8", "text", "text", "bool", "text", "text"},
                              sql::create_acquire_function),
          .release = function("release", {"text"}, sql::create_release_function),
          .extend = function("extend", {"text", "int8"}, sql::create_extend_function),
          .break_lock = function("break", {"text", "text"}, sql::create_break_function),
          .join = function("join", {"text", "text", "text", "int8", "int8", "bool"}, sql::create_join_function),
          .look = function("look", {"text[]", "text[]", "text[]"}, sql::create_look_function),
          .leave = function("leave", {"text", "text"}, sql::create_leave_function)};
}

std::vector<Tables::Part> Tables::parts() const {
  const auto index = [&](const char* placeholder) {
    // An index is in the schema of its table.
    return (locks_name_.schema.empty() ? "" : quoted(locks_name_.schema) + ".") + in(placeholder);
  };
  std::vector<Part> parts = {
      {.name = locks_, .create = in(sql::create_locks)},
      {.kind = Part::Kind::column, .name = locks_, .column = "holder", .create = in(sql::add_holder)},
      {.kind = Part::Kind::column, .name = locks_, .column = "holder_lock_id", .create = in(sql::add_holder_lock_id)},
      {.name = index("{lock_id_index}"), .create = in(sql::create_lock_id_index)},
      {.name = index("{expires_index}"), .create = in(sql::create_expires_index)},
      {.name = counters_, .create = in(sql::create_counters)},
      {.name = waiters_, .create = in(sql::create_waiters)},
      {.name = index("{queue_index}"), .create = in(sql::create_queue_index)},
      {.name = index("{place_index}"), .create = in(sql::create_place_index)}};
  if (locks_name_.schema.empty() || counters_name_.schema.empty()) return parts;
  const auto all = functions();
  for (const auto* function : all.all()) {
    parts.push_back({.kind = Part::Kind::function, .name = function->signature, .create = function->create});
  }
  return parts;
}

bool FoundTables::owns_queue() const {
  return locks && waiters && waiters->is_table && (waiters->trusted || waiters->owner == locks->owner);
}

bool FoundTables::suit_functions() const { return owns_queue() && waiters->usable && locks->has_holder; }

FoundFunctions find_functions(const Rows& rows) {
  constexpr int all = std::tuple_size_v<decltype(std::declval<Tables::Functions>().all())>;
  enum Column : int { trusted, executable };
  if (rows.count() < all) return FoundFunctions::missing;
  const auto all_are = [&](Column column) {
    for (int row = 0; row < rows.count(); ++row) {
      if (rows.text(row, column) != "t") return false;
    }
    return true;
  };
  if (!all_are(trusted)) return FoundFunctions::foreign;
  return all_are(executable) ? FoundFunctions::usable : FoundFunctions::not_executable;
}

FoundTables find_tables(const Tables& names, const Rows& rows) {
  enum Column : int { which, schema, is_table, owner, trusted, usable, id, has_holder };
  const auto found = [&](std::string_view wanted) {
    std::vector<FoundTable> tables;
    for (int row = 0; row < rows.count(); ++row) {
      if (rows.text(row, which) != wanted) continue;
      tables.push_back({.schema = rows.text(row, schema),
                        .is_table = rows.text(row, is_table) == "t",
                        .owner = rows.text(row, owner),
                        .trusted = rows.text(row, trusted) == "t",
                        .usable = rows.text(row, usable) == "t",
                        .id = rows.text(row, id),
                        .has_holder = rows.text(row, has_holder) == "t"});
    }
    return tables;
  };
  const auto first = [&](const std::vector<FoundTable>& tables, const std::string& name,
                         const char* option) -> std::optional<FoundTable> {
    if (tables.empty()) return std::nullopt;
    const auto& table = tables.front();
    if (!table.is_table) refuse(name + " is not a table");
    const bool is_clear =
        table.trusted || std::ranges::all_of(tables, [&](const auto& other) { return other.owner == table.owner; });
    if (!is_clear) {
      refuse(name +
             " exists in several schemas of the search path, with different owners: name the schema with the option " +
             option);
    }
    return table;
  };
  FoundTables result;
  result.locks = first(found("locks"), names.locks(), "table");
  result.counters = first(found("counters"), names.counters(), "fence_table");
  if (result.locks && result.counters) {
    if (result.locks->id == result.counters->id) {
      refuse("table and fence_table are the same table: fences would be lost");
    }
    const bool same_owner = result.counters->trusted || result.counters->owner == result.locks->owner;
    if (names.counters_name().schema.empty() && !same_owner) {
      refuse(names.counters() + " has a different owner than " + names.locks() +
             ": give both one owner, or name the schema with the option fence_table");
    }
  }
  if (result.locks) {
    for (auto& waiters : found("waiters")) {
      if (waiters.schema == result.locks->schema) result.waiters = std::move(waiters);
    }
  }
  return result;
}

}  // namespace syncguard::postgres
