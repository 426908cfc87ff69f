// The stores that the command is tested on.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace syncguard::testing {

// One store, running and set up, for all tests of a program.
class StoreForCommands {
 public:
  StoreForCommands() = default;
  StoreForCommands(const StoreForCommands&) = delete;
  StoreForCommands& operator=(const StoreForCommands&) = delete;
  virtual ~StoreForCommands() = default;

  [[nodiscard]] virtual std::string url() const = 0;
  // Where there is nothing like it.
  [[nodiscard]] virtual std::string unreachable_url() const = 0;
  // Where this user may not go.
  [[nodiscard]] virtual std::string forbidden_url() const = 0;
  // Where no answer ever comes, and an operation may take so long.
  [[nodiscard]] virtual std::string silent_url(const std::string& operation_timeout) = 0;
  // So that the next acquire of key is an internal error.
  virtual void exhaust_fences(const std::string& key) = 0;
};

struct StoreKind {
  const char* name;
  std::function<std::unique_ptr<StoreForCommands>()> start;

  // NOLINTNEXTLINE(readability-identifier-naming): GoogleTest looks for this name
  friend void PrintTo(const StoreKind& kind, std::ostream* out) { *out << kind.name; }
};

// Those that this build contains. Another one is a class, and a line there.
const std::vector<StoreKind>& store_kinds();

}  // namespace syncguard::testing
