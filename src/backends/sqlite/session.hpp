// Runs the steps of the SQLite backend one at a time, blocking only their callers.
#pragma once

#include "async/detachable_thread.hpp"
#include "async/event.hpp"
#include "async/spawn.hpp"
#include "backends/sqlite/store.hpp"

#include <syncguard/backend.hpp>

#include <asio/awaitable.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

namespace syncguard::sqlite {

// Owns one connection, opened by the first step, and a thread for steps that must not block their caller. A blocking
// caller runs its step on its own thread if no other step is running
// (docs/adr/0019-blocking-callers-work-themselves.md). Steps run in the order of their calls, so that requests with the
// same lock id do not overtake each other. Steps that wait at the same time share a transaction
// (docs/adr/0035-sqlite-group-commit.md).
class Session {
 public:
  // max_group_time: after this time, no more steps join a shared transaction, because other processes wait for its end.
  explicit Session(std::filesystem::path path, std::chrono::milliseconds max_group_time = std::chrono::milliseconds(5));
  // Sets the function to call when the database was removed or replaced. Call this before the first step.
  void on_database_gone(std::function<void()> gone);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  // Runs queued steps, then ends the thread. If the thread hangs on the disk, it is detached after a short wait.
  ~Session();

  // Runs queued steps, then closes the database. No step may be run afterwards.
  asio::awaitable<void> close(const CallLimits& limits);

  // anywhere: on the caller's or the session's thread, and in a transaction with other steps. on_thread: for slow
  // steps, only on the session's thread and in a transaction of its own.
  enum class Where { anywhere, on_thread };
  // Runs step(store) and returns its result. When the limits end the call, it has no effect if the step had not begun
  // to write; otherwise it is in doubt, and the step continues in the background. On the caller's own thread, the
  // limits end only the wait for other processes, not for a disk that hangs. step must own everything it refers to. It
  // runs again if its transaction was rolled back because of another step.
  template <typename Step>
  asio::awaitable<std::invoke_result_t<Step&, Store&>> run(Step step, const CallLimits& limits,
                                                           Where where = Where::anywhere) {
    async::expect_no_stop(limits.stop);
    const auto job = std::make_shared<JobWithResult<Step>>(limits, where, std::move(step));
    const bool here = where == Where::anywhere && limits.may_block();
    if (!here || !perform_if_idle(*job)) {
      const auto ended = job->ended.emplace();
      enqueue(job);
      const auto result = co_await ended.wait(limits.deadline, limits.stop);
      if (result != async::WaitResult::set) throw_ended(*job, result);
    }
    if (job->error) throw_error(*job);
    if constexpr (!std::is_void_v<std::invoke_result_t<Step&, Store&>>) co_return std::move(*job->result);
  }

  // For that time, until a granted lock expires, checks every second that the database was not removed or replaced.
  void watch_database_for(std::chrono::milliseconds remaining);

  // Queues step(store) without waiting for it. Exceptions are ignored.
  void run_in_background(std::function<void(Store&)> step);

 private:
  // Not an async::Promise, which is set once and creates an event: a step may run several times before its result is
  // final, and one that runs on its caller's thread needs no event.
  struct Job {
    // waiting: nothing has changed yet. writing: the step may have changed the database. abandoned: it must not begin.
    enum class State { waiting, writing, abandoned };

    Job(CallLimits call_limits, Where place) : limits(std::move(call_limits)), where(place) {}
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;
    virtual ~Job() = default;
    virtual void run(Store& store) = 0;

    const CallLimits limits;
    const Where where;
    std::exception_ptr error;
    std::optional<async::Event> ended;  // set when the session's thread has run it
    State state = State::waiting;       // guarded by Shared's mutex
  };
  template <typename Step>
  struct JobWithResult : Job {
    using Result = std::invoke_result_t<Step&, Store&>;

    JobWithResult(CallLimits call_limits, Where place, Step function)
        : Job(std::move(call_limits), place), step(std::move(function)) {}
    void run(Store& store) override {
      if constexpr (std::is_void_v<Result>) {
        step(store);
      } else {
        result = step(store);
      }
    }

    Step step;
    std::optional<std::conditional_t<std::is_void_v<Result>, std::monostate, Result>> result;
  };
  // Shared with the thread.
  struct Shared;

  void enqueue(std::shared_ptr<Job> job);
  // Runs the job on this thread. Returns false, without running it, if another step is running or queued.
  bool perform_if_idle(Job& job);
  [[noreturn]] static void throw_error(const Job& job);
  [[noreturn]] void throw_ended(Job& job, async::WaitResult result);

  const std::shared_ptr<Shared> shared_;
  async::DetachableThread thread_;
};

}  // namespace syncguard::sqlite
