// The statements in sql/, with the names of the tables in place. All names are qualified, since names resolve in
// pg_catalog alone once settings has run.
#pragma once

#include "backends/postgres/tables.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace syncguard::postgres {

struct Statements {
  // functions: those of the resolved tables. They are called only if found.suit_functions().
  Statements(Tables resolved, const FoundTables& found, FoundFunctions found_functions);

  Tables tables;
  // Empty if they are not installed or must not be called. Then there is no queue, and plain statements serve.
  std::optional<Tables::Functions> functions;
  // Sent before the call of a function.
  std::string timeouts;
  std::string begin;
  std::string settings;
  std::string commit;
  std::string lock_key;
  std::string lock_id;
  std::string acquire;
  std::string release;
  std::string extend;
  std::string lookup_key;
  std::string lookup_id;
  std::string list_locks;
  std::string inspect;
  std::string break_lock;
  std::string raise_fence;
  std::string remove_dead;
  std::string count_expired;
  std::string remove_expired;
};

// One operation: the call of a function, or a plain statement if there is no function for it, or it cannot be called.
struct Operation {
  const Tables::Function Tables::Functions::*function = nullptr;
  // Takes the advisory lock of a key before the plain statement. Its parameter is the first value.
  const std::string Statements::*lock = nullptr;
  const std::string Statements::*statement = nullptr;
  // Which of the values the plain statement uses.
  std::size_t first_value = 0;
  std::size_t value_count = static_cast<std::size_t>(-1);
  // Waits for no advisory lock, so its duration is the network's round trip.
  bool is_round_trip = false;
};

namespace operations {

inline constexpr Operation acquire{.function = &Tables::Functions::acquire,
                                   .lock = &Statements::lock_key,
                                   .statement = &Statements::acquire,
                                   .value_count = 6};
inline constexpr Operation release{
    .function = &Tables::Functions::release, .lock = &Statements::lock_id, .statement = &Statements::release};
// Passes no turn: waiters notice it when they look.
inline constexpr Operation release_quietly{.lock = &Statements::lock_id, .statement = &Statements::release};
inline constexpr Operation extend{
    .function = &Tables::Functions::extend, .lock = &Statements::lock_id, .statement = &Statements::extend};
inline constexpr Operation break_lock{
    .function = &Tables::Functions::break_lock, .lock = &Statements::lock_key, .statement = &Statements::break_lock};
inline constexpr Operation join{.function = &Tables::Functions::join};
inline constexpr Operation look{.function = &Tables::Functions::look, .is_round_trip = true};
inline constexpr Operation leave{.function = &Tables::Functions::leave};
inline constexpr Operation lookup_key{.statement = &Statements::lookup_key, .is_round_trip = true};
inline constexpr Operation lookup_id{.statement = &Statements::lookup_id, .is_round_trip = true};
inline constexpr Operation list{.statement = &Statements::list_locks};
inline constexpr Operation inspect{.statement = &Statements::inspect, .is_round_trip = true};
inline constexpr Operation raise_fence{
    .lock = &Statements::lock_key, .statement = &Statements::raise_fence, .first_value = 1};
inline constexpr Operation remove_dead{.lock = &Statements::lock_key, .statement = &Statements::remove_dead};
inline constexpr Operation count_expired{.statement = &Statements::count_expired};
inline constexpr Operation remove_expired{.statement = &Statements::remove_expired};

}  // namespace operations

// The values of a statement's parameters.
using Values = std::vector<std::string>;

// As an array in PostgreSQL's syntax.
std::string array_of(const Values& texts);

}  // namespace syncguard::postgres
