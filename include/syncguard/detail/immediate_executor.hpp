/// \file
/// Used by the asynchronous API; not for applications.
#pragma once

#include <asio/execution.hpp>
#include <asio/execution_context.hpp>

#include <type_traits>
#include <utility>

namespace syncguard {
inline namespace v0_1 {
namespace detail {

// For the completion of a coroutine whose handler only stores a result or posts it, and never resumes anything: runs it
// immediately even if Asio would post it.
class ImmediateExecutor {
 public:
  explicit ImmediateExecutor(asio::execution_context& context) noexcept : context_(&context) {}

  template <typename Function>
  void execute(Function&& function) const {
    std::decay_t<Function> owned(std::forward<Function>(function));
    std::move(owned)();
  }
  asio::execution_context& query(asio::execution::context_t) const noexcept { return *context_; }
  // Saves any_io_executor an allocation per function.
  static constexpr asio::execution::blocking_t query(asio::execution::blocking_t) noexcept {
    return asio::execution::blocking.always;
  }
  ImmediateExecutor require(asio::execution::blocking_t::never_t) const noexcept { return *this; }

  friend bool operator==(const ImmediateExecutor&, const ImmediateExecutor&) noexcept = default;

 private:
  asio::execution_context* context_;
};

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
