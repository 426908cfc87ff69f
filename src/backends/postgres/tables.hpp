// The names of the tables, their substitution in statements, and the tables on the server that they refer to.
#pragma once

#include "backends/postgres/connection.hpp"

#include <syncguard/postgres.hpp>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace syncguard::postgres {

class Tables {
 public:
  struct Name {
    // Empty: the user's search path decides.
    std::string schema;
    std::string table;
  };

  // Throws LockError(invalid_argument) unless the names are different identifiers, optionally with a schema.
  Tables(const std::string& locks, const std::string& counters);

  [[nodiscard]] const Name& locks_name() const noexcept { return locks_name_; }
  [[nodiscard]] const Name& counters_name() const noexcept { return counters_name_; }
  // The same tables in these schemas, which are not validated.
  [[nodiscard]] Tables in_schemas(const std::string& of_locks, const std::string& of_counters) const;

  // Quoted for SQL.
  [[nodiscard]] const std::string& locks() const noexcept { return locks_; }
  [[nodiscard]] const std::string& counters() const noexcept { return counters_; }
  [[nodiscard]] const std::string& waiters() const noexcept { return waiters_; }

  // Replaces {locks}, {counters}, {waiters}, the names of indexes, the constants in backends/verdict.hpp, {now} and
  // {clock_fence}, the server's clock in milliseconds and in units of 100 us, and what makes a statement fail whose
  // change was discarded.
  [[nodiscard]] std::string in(std::string_view statement) const;

  // A function that setup installs in the schema of the locks: its quoted name with the types of its arguments, and the
  // statement that calls it.
  struct Function {
    std::string signature;
    std::string call;
    std::string create;
  };
  struct Functions {
    Function acquire;
    Function release;
    Function extend;
    Function break_lock;
    Function join;
    Function look;
    Function leave;

    [[nodiscard]] std::array<const Function*, 7> all() const {
      return {&acquire, &release, &extend, &break_lock, &join, &look, &leave};
    }
  };
  // Their names depend on the names of both tables: the schemas must be known.
  [[nodiscard]] Functions functions() const;

  // What setup creates, in this order: a table or index by its quoted name, a column, or a function by its signature,
  // each with the statement that creates it. Without functions if a schema is unknown.
  struct Part {
    enum class Kind { relation, column, function };
    Kind kind = Kind::relation;
    std::string name;
    std::string column{};
    std::string create;
  };
  [[nodiscard]] std::vector<Part> parts() const;

 private:
  Tables(Name locks, Name counters);

  Name locks_name_;
  Name counters_name_;
  std::string locks_;
  std::string counters_;
  std::string waiters_;
};

// A table on the server that a name may refer to.
struct FoundTable {
  std::string schema;
  bool is_table;
  std::string owner;
  // Owned by this user, a superuser or the owner of the database.
  bool trusted;
  // This user may read and write it.
  bool usable;
  std::string id;
  // For the locks: whether this user can use the columns holder and holder_lock_id. Other libraries create no such
  // columns.
  bool has_holder;
};

// The tables that the names refer to.
struct FoundTables {
  std::optional<FoundTable> locks{};
  std::optional<FoundTable> counters{};
  std::optional<FoundTable> waiters{};

  // False if the queue may have been created by a role that has no power over the locks. Such a queue is not used.
  [[nodiscard]] bool owns_queue() const;
  // Whether everything that the functions use is there.
  [[nodiscard]] bool suit_functions() const;
};

// Whether the installed functions can be called. Functions of a role that has no power over the locks are not called,
// because they would run with the rights of the caller.
enum class FoundFunctions { usable, missing, foreign, not_executable };

// From the rows of the statement functions (sql/schema.sql).
FoundFunctions find_functions(const Rows& rows);

// From the rows of the statement tables (sql/schema.sql). Throws LockError(invalid_argument) if the schema of another
// role on the search path could decide which table is used; see docs/adr/0020-postgres-search-path.md.
FoundTables find_tables(const Tables& names, const Rows& rows);

// Replaces every occurrence.
std::string replaced(std::string text, std::string_view from, std::string_view to);

}  // namespace syncguard::postgres
