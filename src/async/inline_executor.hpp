// Executors that run functions immediately, on the current thread.
#pragma once

#include <asio/any_io_executor.hpp>
#include <asio/execution.hpp>
#include <asio/execution_context.hpp>
#include <asio/prefer.hpp>
#include <asio/query.hpp>
#include <asio/require.hpp>

#include <concepts>
#include <type_traits>
#include <utility>

namespace syncguard::async {

// The executor of the library's coroutines. A coroutine starts on its caller's thread, so that a blocking caller's
// request is written from there, and continues wherever its I/O completes; only explicitly posted functions go through
// the inner executor. Sockets and timers created with it belong to the inner executor's context. See
// docs/adr/0003-inline-coroutines.md.
class InlineExecutor {
 public:
  // A template only to break a cycle of constraints. Otherwise "is InlineExecutor copyable?" would consider the
  // converting constructor of any_io_executor, which asks "is InlineExecutor an executor?", which asks whether it is
  // copyable.
  template <std::same_as<asio::any_io_executor> Inner>
  explicit InlineExecutor(Inner inner) noexcept : inner_(std::move(inner)) {}

  template <typename Function>
  void execute(Function&& function) const {
    if (runs_ == Runs::posted) {
      asio::require(inner_, asio::execution::blocking.never).execute(std::forward<Function>(function));
    } else {
      std::decay_t<Function> owned(std::forward<Function>(function));
      std::move(owned)();
    }
  }

  asio::execution_context& query(asio::execution::context_t) const noexcept {
    return asio::query(inner_, asio::execution::context);
  }
  // "always" also saves any_io_executor an allocation per function.
  asio::execution::blocking_t query(asio::execution::blocking_t) const noexcept {
    return runs_ == Runs::posted ? asio::execution::blocking_t(asio::execution::blocking.never)
                                 : asio::execution::blocking_t(asio::execution::blocking.always);
  }
  asio::execution::outstanding_work_t query(asio::execution::outstanding_work_t) const noexcept {
    return asio::query(inner_, asio::execution::outstanding_work);
  }

  InlineExecutor require(asio::execution::blocking_t::never_t) const noexcept {
    return InlineExecutor(inner_, Runs::posted);
  }
  InlineExecutor require(asio::execution::blocking_t::possibly_t) const noexcept {
    return InlineExecutor(inner_, Runs::at_once);
  }
  InlineExecutor require(asio::execution::outstanding_work_t::tracked_t) const {
    return InlineExecutor(asio::prefer(inner_, asio::execution::outstanding_work.tracked), runs_);
  }
  InlineExecutor require(asio::execution::outstanding_work_t::untracked_t) const {
    return InlineExecutor(asio::prefer(inner_, asio::execution::outstanding_work.untracked), runs_);
  }

  friend bool operator==(const InlineExecutor& a, const InlineExecutor& b) noexcept {
    return a.inner_ == b.inner_ && a.runs_ == b.runs_;
  }
  friend bool operator!=(const InlineExecutor& a, const InlineExecutor& b) noexcept { return !(a == b); }

 private:
  enum class Runs { at_once, posted };
  InlineExecutor(asio::any_io_executor inner, Runs runs) noexcept : inner_(std::move(inner)), runs_(runs) {}

  asio::any_io_executor inner_;
  Runs runs_ = Runs::at_once;
};

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

}  // namespace syncguard::async
