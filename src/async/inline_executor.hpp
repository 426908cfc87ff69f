// The executor of the library's coroutines.
#pragma once

#include <asio/any_io_executor.hpp>
#include <asio/execution.hpp>
#include <asio/execution_context.hpp>
#include <asio/prefer.hpp>
#include <asio/query.hpp>
#include <asio/require.hpp>

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

namespace syncguard::async {

// The executor of the library's coroutines. A coroutine starts on its caller's thread, so that a blocking caller's
// request is written from there, and continues wherever its I/O completes; only explicitly posted functions go through
// the inner executor. Sockets and timers created with it belong to the inner executor's context. A coroutine
// does not count as work of that context: its I/O does. See docs/adr/0003-inline-coroutines.md.
class InlineExecutor {
 public:
  // A template only to break a cycle of constraints. Otherwise "is InlineExecutor copyable?" would consider the
  // converting constructor of any_io_executor, which asks "is InlineExecutor an executor?", which asks whether it is
  // copyable.
  template <std::same_as<asio::any_io_executor> Inner>
  explicit InlineExecutor(Inner inner) : inner_(std::make_shared<const asio::any_io_executor>(std::move(inner))) {}

  template <typename Function>
  void execute(Function&& function) const {
    std::decay_t<Function> owned(std::forward<Function>(function));
    std::move(owned)();
  }

  asio::execution_context& query(asio::execution::context_t) const noexcept {
    return asio::query(*inner_, asio::execution::context);
  }
  // Saves any_io_executor an allocation per function.
  static constexpr asio::execution::blocking_t query(asio::execution::blocking_t) noexcept {
    return asio::execution::blocking.always;
  }
  // Posted functions go through the inner executor.
  asio::any_io_executor require(asio::execution::blocking_t::never_t) const {
    return asio::require(*inner_, asio::execution::blocking.never);
  }

  friend bool operator==(const InlineExecutor& a, const InlineExecutor& b) noexcept { return *a.inner_ == *b.inner_; }
  friend bool operator!=(const InlineExecutor& a, const InlineExecutor& b) noexcept { return !(a == b); }

 private:
  // A pointer, because any_io_executor stores objects of this size without an allocation, and copies them often.
  std::shared_ptr<const asio::any_io_executor> inner_;
};

}  // namespace syncguard::async
