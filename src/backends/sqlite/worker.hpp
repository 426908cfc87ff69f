// Runs the steps of the embedded backend, one after the other, where they block nobody but their caller.
#pragma once

#include "async/loose_thread.hpp"
#include "async/spawn.hpp"
#include "async/wake_up.hpp"
#include "backends/sqlite/store.hpp"

#include <syncguard/backend.hpp>

#include <asio/awaitable.hpp>

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace syncguard::sqlite {

// One connection, opened with the first step, and a thread that runs what may not block its caller: what begins on a
// thread that is about to block runs there, if nothing else is under way
// (docs/adr/0019-blocking-callers-work-themselves.md). Steps run in the order in which they came, so that no request of
// a lock id overtakes another.
class Worker {
 public:
  explicit Worker(std::filesystem::path path);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  // Runs what is queued, then ends. A thread that the disk does not let go is left behind after a moment.
  ~Worker();

  // Runs what is queued, then gives the file back. Nothing may be run afterwards.
  asio::awaitable<void> close(const CallLimits& limits);

  // Where a step may run: one that may take long by itself is for the worker alone.
  enum class Where { anywhere, on_worker };
  // Runs step(store) and returns what it does. Ends by the limits: without effect if the step had not begun to write,
  // in doubt if it had; then it goes on by itself. On the caller's own thread, limits end only the waiting for other
  // processes: a disk that hangs is waited for. step must own what it refers to.
  template <typename Result>
  asio::awaitable<Result> run(std::function<Result(Store&)> step, const CallLimits& limits,
                              Where where = Where::anywhere) {
    async::expect_no_stop(limits.stop);
    const auto job = std::make_shared<JobWithResult<Result>>(limits, std::move(step));
    const bool here = where == Where::anywhere && async::this_thread_is_about_to_block();
    if (!here || !perform_if_idle(*job)) {
      job->ended = std::make_shared<async::WakeUp>();
      enqueue(job);
      const auto reason = co_await job->ended->wait(limits.deadline, limits.stop);
      if (reason != async::WakeUp::Reason::woken) give_up(*job, reason);
    }
    if (job->error) std::rethrow_exception(job->error);
    co_return std::move(*job->result);
  }

  // Runs step(store) when its time comes; nobody waits for it, and what it throws is ignored.
  void run_in_background(std::function<void(Store&)> step);

 private:
  struct Job {
    // Up to waiting nothing has happened yet; from writing on it may have.
    enum class State { waiting, writing, abandoned };

    explicit Job(CallLimits call_limits) : limits(std::move(call_limits)) {}
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;
    virtual ~Job() = default;
    virtual void run(Store& store) = 0;

    const CallLimits limits;
    std::exception_ptr error;
    std::shared_ptr<async::WakeUp> ended;  // where somebody waits for the worker
    State state = State::waiting;          // guarded by the worker's mutex
  };
  template <typename Result>
  struct JobWithResult : Job {
    JobWithResult(CallLimits call_limits, std::function<Result(Store&)> function)
        : Job(std::move(call_limits)), step(std::move(function)) {}
    void run(Store& store) override { result = step(store); }

    const std::function<Result(Store&)> step;
    std::optional<Result> result;
  };
  // Shared with the thread.
  struct Shared;

  void enqueue(std::shared_ptr<Job> job);
  // On this thread. Whether it was done: not if something else is under way or comes first.
  bool perform_if_idle(Job& job);
  [[noreturn]] void give_up(Job& job, async::WakeUp::Reason reason);

  const std::shared_ptr<Shared> shared_;
  async::LooseThread thread_;
};

}  // namespace syncguard::sqlite
