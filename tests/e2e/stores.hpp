// The stores for tests of the command.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace syncguard::testing {

// A running store, shared by all tests of a program.
class StoreForCommands {
 public:
  StoreForCommands() = default;
  StoreForCommands(const StoreForCommands&) = delete;
  StoreForCommands& operator=(const StoreForCommands&) = delete;
  virtual ~StoreForCommands() = default;

  [[nodiscard]] virtual std::string url() const = 0;
  // A place where no store exists.
  [[nodiscard]] virtual std::string unreachable_url() const = 0;
  // A store that denies access.
  [[nodiscard]] virtual std::string forbidden_url() const = 0;
  // A store that never replies, with this operation timeout.
  [[nodiscard]] virtual std::string silent_url(const std::string& operation_timeout) = 0;
  // The next acquire of the key fails with an internal error.
  virtual void exhaust_fences(const std::string& key) = 0;
};

struct StoreKind {
  const char* name;
  std::function<std::unique_ptr<StoreForCommands>()> start;

  // NOLINTNEXTLINE(readability-identifier-naming): GoogleTest looks for this name
  friend void PrintTo(const StoreKind& kind, std::ostream* out) { *out << kind.name; }
};

// The stores in this build. To add one, write a class and add a line to the list in stores.cpp.
const std::vector<StoreKind>& store_kinds();

}  // namespace syncguard::testing
