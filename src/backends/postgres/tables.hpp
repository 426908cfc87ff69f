// The names of the tables, and statements with them in place.
#pragma once

#include <syncguard/postgres.hpp>

#include <string>
#include <string_view>

namespace syncguard::postgres {

class Tables {
 public:
  // Throws LockError(invalid_argument) unless the names are different identifiers, optionally with a schema.
  Tables(const std::string& locks, const std::string& counters);

  // Quoted, as SQL has them.
  [[nodiscard]] const std::string& locks() const noexcept { return locks_; }
  [[nodiscard]] const std::string& counters() const noexcept { return counters_; }
  [[nodiscard]] const std::string& waiters() const noexcept { return waiters_; }

  // Replaces {locks}, {counters}, {waiters}, the names of indexes, and {now}, the server's clock in milliseconds.
  [[nodiscard]] std::string in(std::string_view statement) const;

 private:
  std::string locks_;
  std::string counters_;
  std::string waiters_;
  std::string bare_locks_;
};

// Replaces every occurrence.
std::string replaced(std::string text, std::string_view from, std::string_view to);

}  // namespace syncguard::postgres
