#include "backends/postgres/tables.hpp"

#include "postgres_sql.hpp"

#include <algorithm>
#include <vector>

namespace syncguard::postgres {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw LockError(ErrorCode::invalid_argument, message); }

bool is_identifier(std::string_view text) {
  // Longer ones would cut the names of indexes, and PostgreSQL would take two names for one.
  constexpr std::size_t longest = 51;
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !text.empty() && text.size() <= longest && is_letter(text.front()) &&
         std::ranges::all_of(text, [&](char c) { return is_letter(c) || is_digit(c); });
}

struct Name {
  std::string schema;
  std::string table;
};

Name parse(const std::string& text, const char* option) {
  const auto dot = text.find('.');
  Name name{.schema = dot == std::string::npos ? "" : text.substr(0, dot),
            .table = dot == std::string::npos ? text : text.substr(dot + 1)};
  if ((dot != std::string::npos && !is_identifier(name.schema)) || !is_identifier(name.table)) {
    refuse(std::string(option) +
           " is no name of a table: letters, digits and underscores, at most 51 of them, optionally after a schema");
  }
  return name;
}

std::string quoted(const std::string& identifier) { return '"' + identifier + '"'; }

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

Tables::Tables(const std::string& locks, const std::string& counters) {
  const auto lock_name = parse(locks, "table");
  const auto counter_name = parse(counters, "fence_table");
  locks_ = quoted(lock_name);
  counters_ = quoted(counter_name);
  waiters_ = quoted(lock_name, "_waiters");
  bare_locks_ = lock_name.table;
  if (locks_ == counters_ || waiters_ == counters_) {
    refuse("locks and fence counters need tables of their own: table and fence_table must differ");
  }
}

std::string Tables::in(std::string_view statement) const {
  std::string text(statement);
  text = replaced(std::move(text), "{now}", sql::now);
  text = replaced(std::move(text), "{locks}", locks_);
  text = replaced(std::move(text), "{counters}", counters_);
  text = replaced(std::move(text), "{waiters}", waiters_);
  text = replaced(std::move(text), "{lock_id_index}", quoted("idx_" + bare_locks_ + "_lock_id"));
  text = replaced(std::move(text), "{expires_index}", quoted("idx_" + bare_locks_ + "_expires"));
  return replaced(std::move(text), "{waiters_index}", quoted("idx_" + bare_locks_ + "_queue"));
}

}  // namespace syncguard::postgres
