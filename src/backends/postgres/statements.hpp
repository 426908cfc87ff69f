// The statements in sql/, with the names of the tables in place. All names are qualified, since names resolve in
// pg_catalog alone once settings has run.
#pragma once

#include "backends/postgres/tables.hpp"

#include <optional>
#include <string>
#include <vector>

namespace syncguard::postgres {

struct Statements {
  // Tables created by another library have no queue; the queue of an older version has no column for the requested
  // reservation.
  enum class Queue { none, without_reservations, exists };
  // Whether the table of locks has the columns for the label of the holder. Those of another library have not.
  enum class Holder { none, exists };
  // Functions are used only if the queue and those columns exist.
  Statements(Tables resolved, Queue queue, Holder holder, FoundFunctions found_functions);

  Tables tables;
  bool has_queue;
  // Empty if they are not installed or must not be called. The plain statements are used instead.
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
  // Does not use the queue.
  std::string release_quietly;
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
  std::string clear_queue;
  std::string join;
  std::string leave;
  std::string seen;
  std::string purge;
  std::string lapsed;
};

// The statements of one operation, without timeouts and without those that start and end a transaction.
struct Request {
  std::vector<Statement> statements;
  // A function call, which is a transaction of its own. The first column of the result is a verdict.
  bool is_call = false;
  // The request waits for no advisory lock, so its duration is the network's round trip.
  bool is_round_trip = false;
};

}  // namespace syncguard::postgres
