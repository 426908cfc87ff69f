// The statements in sql/, with the names of the tables in place.
#pragma once

#include "backends/postgres/tables.hpp"

#include <string>

namespace syncguard::postgres {

struct Statements {
  // Tables that another library made have no queue.
  enum class Queue { none, exists };
  Statements(const Tables& tables, Queue queue);

  bool has_queue;
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
  std::string remove_dead;
  std::string clear_queue;
  std::string join;
  std::string leave;
};

}  // namespace syncguard::postgres
