#include "backends/sqlite/worker.hpp"

#include <condition_variable>
#include <csignal>
#include <ctime>
#include <deque>
#include <mutex>

namespace syncguard::sqlite {
namespace {

// For as long as it exists, a file that may not grow (ulimit -f) is an error of this thread's and no signal, which
// would end a program that does not expect it.
class NoSignalForFileSize {
 public:
  NoSignalForFileSize() noexcept {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  NoSignalForFileSize(const NoSignalForFileSize&) = delete;
  NoSignalForFileSize& operator=(const NoSignalForFileSize&) = delete;
  ~NoSignalForFileSize() {
    if (sigismember(&before_, SIGXFSZ) == 1) return;
    // One that came must not be delivered now.
    const timespec at_once{};
    sigtimedwait(&signal_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t signal_{};
  sigset_t before_{};
};

}  // namespace

struct Worker::Shared {
  explicit Shared(std::filesystem::path file) : path(std::move(file)) {}

  void end();
  void work();
  // Without the lock, which it takes back.
  void perform(Job& job, std::unique_lock<std::mutex>& lock);
  void try_to_perform(Job& job);
  Database::Hooks hooks();

  const std::filesystem::path path;
  // Of the thread that performs.
  std::optional<Store> store;
  Job* current = nullptr;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Job>> queue;
  bool performing = false;
  bool ending = false;
};

Worker::Worker(std::filesystem::path path)
    : shared_(std::make_shared<Shared>(std::move(path))),
      thread_("syncguard-sql", [shared = shared_] { shared->work(); }) {}

Worker::~Worker() { shared_->end(); }

asio::awaitable<void> Worker::close(const CallLimits& limits) {
  shared_->end();
  co_await thread_.ended(limits.deadline, limits.stop);
}

void Worker::enqueue(std::shared_ptr<Job> job) {
  const std::lock_guard lock(shared_->mutex);
  shared_->queue.push_back(std::move(job));
  shared_->changed.notify_all();
}

bool Worker::perform_if_idle(Job& job) {
  std::unique_lock lock(shared_->mutex);
  if (shared_->performing || shared_->ending || !shared_->queue.empty()) return false;
  const NoSignalForFileSize no_signal;
  shared_->perform(job, lock);
  // Only for what came meanwhile: to wake the thread for nothing costs as much as to give it the job.
  if (shared_->ending || !shared_->queue.empty()) shared_->changed.notify_all();
  return true;
}

void Worker::run_in_background(std::function<void(Store&)> step) {
  const CallLimits limits{{}, std::chrono::steady_clock::now() + std::chrono::seconds(1)};
  std::function<bool(Store&)> job = [step = std::move(step)](Store& store) {
    step(store);
    return true;
  };
  enqueue(std::make_shared<JobWithResult<bool>>(limits, std::move(job)));
}

void Worker::give_up(Job& job, async::WakeUp::Reason reason) {
  Effect effect = Effect::none;
  {
    const std::lock_guard lock(shared_->mutex);
    if (job.state == Job::State::waiting) {
      job.state = Job::State::abandoned;
    } else {
      effect = Effect::in_doubt;
    }
  }
  async::give_up(reason, "SQLite: the disk or other processes kept it waiting until the time-out", effect);
}

void Worker::Shared::end() {
  const std::lock_guard lock(mutex);
  ending = true;
  changed.notify_all();
}

void Worker::Shared::work() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [this] { return !performing && (ending || !queue.empty()); });
    if (queue.empty()) break;
    const auto job = std::move(queue.front());
    queue.pop_front();
    if (job->state == Job::State::abandoned) continue;
    perform(*job, lock);
    if (job->ended) job->ended->wake();
  }
  lock.unlock();
  store.reset();
}

Database::Hooks Worker::Shared::hooks() {
  const auto keep_waiting = [this] {
    return !current->limits.stop.stop_requested() && std::chrono::steady_clock::now() < current->limits.deadline;
  };
  const auto may_write = [this] {
    const std::lock_guard lock(mutex);
    if (current->state == Job::State::abandoned) return false;
    current->state = Job::State::writing;
    return true;
  };
  return {.keep_waiting = keep_waiting, .may_write = may_write};
}

void Worker::Shared::perform(Job& job, std::unique_lock<std::mutex>& lock) {
  performing = true;
  current = &job;
  lock.unlock();
  try_to_perform(job);
  lock.lock();
  current = nullptr;
  performing = false;
}

void Worker::Shared::try_to_perform(Job& job) {
  try {
    // A file that was removed or replaced is not what the others use any more.
    if (store && store->has_moved()) store.reset();
    if (!store) store.emplace(path, hooks());
    job.run(*store);
  } catch (const LockError& error) {
    // When we ended it ourselves, our reason decides.
    const bool stopped = error.code() == ErrorCode::network_timeout && job.limits.stop.stop_requested();
    const auto effect = error.in_doubt() ? Effect::in_doubt : Effect::none;
    job.error = stopped ? std::make_exception_ptr(LockError(ErrorCode::aborted, "a stop was requested", effect))
                        : std::current_exception();
  } catch (...) {
    job.error = std::current_exception();
  }
}

}  // namespace syncguard::sqlite
