#include "backends/sqlite/worker.hpp"

#include "async/thread.hpp"

namespace syncguard::sqlite {

Worker::Worker(std::filesystem::path path)
    : path_(std::move(path)), thread_(async::start_thread("syncguard-sql", [this] { work(); })) {}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

void Worker::enqueue(std::shared_ptr<Job> job) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(job));
  changed_.notify_one();
}

void Worker::run_in_background(std::function<void(Store&)> step) {
  auto job = std::make_shared<Job>();
  job->limits.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  job->run = std::move(step);
  job->fail = [](const std::exception_ptr&) {};
  enqueue(std::move(job));
}

void Worker::give_up(Job& job, async::WakeUp::Reason reason) {
  Effect effect = Effect::none;
  {
    const std::lock_guard lock(mutex_);
    if (job.state == Job::State::queued) {
      job.state = Job::State::abandoned;
    } else {
      effect = Effect::in_doubt;
    }
  }
  if (reason == async::WakeUp::Reason::stopped) throw LockError(ErrorCode::aborted, "a stop was requested", effect);
  throw LockError(ErrorCode::network_timeout, "SQLite: the disk or other processes kept it waiting until the time-out",
                  effect);
}

void Worker::work() {
  for (;;) {
    std::shared_ptr<Job> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ending_ || !queue_.empty(); });
      if (queue_.empty()) return;
      job = std::move(queue_.front());
      queue_.pop_front();
      if (job->state == Job::State::abandoned) continue;
      job->state = Job::State::running;
    }
    perform(*job);
    job->ended->wake();
  }
}

void Worker::perform(Job& job) {
  current_ = &job.limits;
  try {
    if (!store_) {
      // A caller that gives up ends the waiting for other processes; their next step tries again.
      store_.emplace(path_, [this] {
        return !current_->stop.stop_requested() && std::chrono::steady_clock::now() < current_->deadline;
      });
    }
    job.run(*store_);
  } catch (const LockError& error) {
    // When we ended it ourselves, our reason decides.
    const bool stopped = error.code() == ErrorCode::network_timeout && job.limits.stop.stop_requested();
    job.fail(stopped ? std::make_exception_ptr(LockError(ErrorCode::aborted, "a stop was requested"))
                     : std::current_exception());
  } catch (...) {
    job.fail(std::current_exception());
  }
}

}  // namespace syncguard::sqlite
