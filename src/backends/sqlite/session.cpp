#include "backends/sqlite/session.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <deque>
#include <mutex>
#include <span>
#include <vector>

namespace syncguard::sqlite {
namespace {

constexpr std::chrono::seconds check_interval{1};

constexpr std::size_t max_group_size = 64;

// While in scope, a write beyond the file size limit (ulimit -f) fails on this thread instead of raising SIGXFSZ, which
// would end the program.
class BlockFileSizeSignal {
 public:
  BlockFileSizeSignal() noexcept {
    rlimit limit{};
    blocks_ = getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
    if (!blocks_) return;
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  BlockFileSizeSignal(const BlockFileSizeSignal&) = delete;
  BlockFileSizeSignal& operator=(const BlockFileSizeSignal&) = delete;
  ~BlockFileSizeSignal() {
    if (!blocks_ || sigismember(&before_, SIGXFSZ) == 1) return;
    // Takes a pending signal, which would otherwise be delivered now.
    const timespec no_wait{};
    sigtimedwait(&signal_, nullptr, &no_wait);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  bool blocks_ = true;
  sigset_t signal_{};
  sigset_t before_{};
};

}  // namespace

struct Session::Shared {
  Shared(std::filesystem::path file, std::chrono::milliseconds group_time)
      : path(std::move(file)), max_group_time(group_time) {}

  class Performing;

  void end();
  void work();
  // Takes the steps that may run together from the queue.
  std::vector<std::shared_ptr<Job>> take_jobs();
  void run_all(std::span<const std::shared_ptr<Job>> jobs);
  // Runs steps from the front in one transaction and returns how many ended.
  std::size_t run_group(std::span<const std::shared_ptr<Job>> jobs);
  // Runs a step, in a transaction of its own or as a part of the group's.
  void run(Job& job);
  void close_replaced_database();
  Connection::Hooks hooks();

  const std::filesystem::path path;
  const std::chrono::milliseconds max_group_time;
  // Used only by the thread that set `performing`.
  std::optional<Store> store;
  Job* current = nullptr;  // null during the COMMIT of a group
  std::function<void()> database_gone = [] {};

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Job>> queue;
  bool performing = false;
  bool ending = false;
  std::chrono::steady_clock::time_point watch_until;
};

// While in scope, the thread owns what `performing` guards, and the mutex is unlocked.
class Session::Shared::Performing {
 public:
  Performing(Shared& shared, std::unique_lock<std::mutex>& lock) : shared_(shared), lock_(lock) {
    shared_.performing = true;
    lock_.unlock();
  }
  Performing(const Performing&) = delete;
  Performing& operator=(const Performing&) = delete;
  ~Performing() {
    lock_.lock();
    shared_.performing = false;
  }

 private:
  Shared& shared_;
  std::unique_lock<std::mutex>& lock_;
};

Session::Session(std::filesystem::path path, std::chrono::milliseconds max_group_time)
    : shared_(std::make_shared<Shared>(std::move(path), max_group_time)),
      thread_("syncguard-sql", [shared = shared_] { shared->work(); }) {}

Session::~Session() { shared_->end(); }

void Session::on_database_gone(std::function<void()> gone) { shared_->database_gone = std::move(gone); }

void Session::watch_database_for(std::chrono::milliseconds remaining) {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(shared_->mutex);
  const bool watching = shared_->watch_until > now;
  shared_->watch_until = std::max(shared_->watch_until, now + remaining);
  if (!watching) shared_->changed.notify_all();
}

asio::awaitable<void> Session::close(const CallLimits& limits) {
  shared_->end();
  co_await thread_.ended(limits.deadline, limits.stop);
}

void Session::enqueue(std::shared_ptr<Job> job) {
  const std::lock_guard lock(shared_->mutex);
  shared_->queue.push_back(std::move(job));
  shared_->changed.notify_all();
}

bool Session::perform_if_idle(Job& job) {
  std::unique_lock lock(shared_->mutex);
  if (shared_->performing || shared_->ending || !shared_->queue.empty()) return false;
  {
    const Shared::Performing performing(*shared_, lock);
    const BlockFileSizeSignal no_signal;
    shared_->close_replaced_database();
    shared_->run(job);
  }
  // Only if steps were queued in the meantime: an unnecessary wake-up costs as much as handing over the job.
  if (shared_->ending || !shared_->queue.empty()) shared_->changed.notify_all();
  return true;
}

void Session::run_in_background(std::function<void(Store&)> step) {
  const CallLimits limits{{}, std::chrono::steady_clock::now() + std::chrono::seconds(1)};
  enqueue(std::make_shared<JobWithResult<std::function<void(Store&)>>>(limits, Where::anywhere, std::move(step)));
}

void Session::throw_error(const Job& job) {
  try {
    std::rethrow_exception(job.error);
  } catch (const LockError& error) {
    // SQLite reports a timeout, although the stop request ended the step.
    if (error.code() != ErrorCode::network_timeout || !job.limits.stop.stop_requested()) throw;
    const auto effect = error.in_doubt() ? Effect::in_doubt : Effect::none;
    throw LockError(ErrorCode::aborted, "a stop was requested", effect);
  }
}

void Session::throw_ended(Job& job, async::WaitResult result) {
  Effect effect = Effect::none;
  {
    const std::lock_guard lock(shared_->mutex);
    if (job.state == Job::State::waiting) {
      job.state = Job::State::abandoned;
    } else {
      effect = Effect::in_doubt;
    }
  }
  async::throw_ended(
      result, "timed out waiting for the SQLite database: the disk is slow, or another process keeps it busy", effect);
}

void Session::Shared::end() {
  const std::lock_guard lock(mutex);
  ending = true;
  changed.notify_all();
}

void Session::Shared::work() {
  std::unique_lock lock(mutex);
  for (;;) {
    const auto is_wanted = [this] { return !performing && (ending || !queue.empty()); };
    const auto now = std::chrono::steady_clock::now();
    if (watch_until <= now) {
      changed.wait(lock, [&] { return is_wanted() || watch_until > now; });
      if (!is_wanted()) continue;
    } else if (!changed.wait_until(lock, now + check_interval, is_wanted) && performing) {
      continue;
    }
    if (ending && queue.empty()) break;
    // Without any, it only checks the database.
    const auto jobs = take_jobs();
    const Performing steps(*this, lock);
    close_replaced_database();
    run_all(jobs);
  }
  lock.unlock();
  store.reset();
}

std::vector<std::shared_ptr<Session::Job>> Session::Shared::take_jobs() {
  std::vector<std::shared_ptr<Job>> jobs;
  while (!queue.empty() && jobs.size() < max_group_size) {
    auto& next = queue.front();
    const bool alone = next->where == Where::on_thread;
    if (alone && !jobs.empty()) break;
    if (next->state != Job::State::abandoned) jobs.push_back(std::move(next));
    queue.pop_front();
    if (alone) break;
  }
  return jobs;
}

Connection::Hooks Session::Shared::hooks() {
  const auto is_in_time = [this] {
    return !current->limits.stop.stop_requested() && std::chrono::steady_clock::now() < current->limits.deadline;
  };
  const auto may_write = [this] {
    const std::lock_guard lock(mutex);
    if (current->state == Job::State::abandoned) return false;
    current->state = Job::State::writing;
    return true;
  };
  return {.keep_waiting = [this, is_in_time] { return current != nullptr && is_in_time(); },
          .keep_running = [this, is_in_time] { return current == nullptr || is_in_time(); },
          .may_write = may_write};
}

// Other processes do not see the locks in a file that was removed or replaced, and may be granted them.
void Session::Shared::close_replaced_database() {
  if (!store || !store->has_moved()) return;
  store.reset();
  database_gone();
}

void Session::Shared::run_all(std::span<const std::shared_ptr<Job>> jobs) {
  while (!jobs.empty()) {
    const auto ended = run_group(jobs);
    for (const auto& job : jobs.first(ended)) {
      if (job->ended) job->ended->set();
    }
    jobs = jobs.subspan(ended);
  }
}

std::size_t Session::Shared::run_group(std::span<const std::shared_ptr<Job>> jobs) {
  if (jobs.size() == 1 || !store) {
    run(*jobs.front());
    return 1;
  }

  store->begin_group();
  std::optional<std::chrono::steady_clock::time_point> end;
  std::size_t ended = 0;
  while (ended < jobs.size() && (!end || std::chrono::steady_clock::now() < *end)) {
    run(*jobs[ended++]);
    if (store->group_is_lost()) {
      // Run alone, each step gets the result that it would have without the others.
      store->abandon_group();
      for (const auto& again : jobs.first(ended)) run(*again);
      return ended;
    }
    // The step only read, so its result is final. The next step may have to wait for other processes.
    if (!store->group_has_begun()) break;
    if (!end) end = std::chrono::steady_clock::now() + max_group_time;
  }
  try {
    store->commit_group();
  } catch (const LockError&) {
    // Each step may depend on the changes of the others, so all of them fail.
    for (const auto& job : jobs.first(ended)) job->error = std::current_exception();
  }
  return ended;
}

void Session::Shared::run(Job& job) {
  current = &job;
  job.error = nullptr;
  try {
    if (!store) store.emplace(path, hooks());
    job.run(*store);
  } catch (...) {
    job.error = std::current_exception();
  }
  current = nullptr;
}

}  // namespace syncguard::sqlite
