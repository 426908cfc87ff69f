#include "backends/sqlite/watcher.hpp"

#include "async/system_now.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

namespace syncguard::sqlite {
namespace {

// Where a look failed, and as a net under it all: the client polls besides.
constexpr int look_again_later_ms = 1000;

}  // namespace

class Watcher::Shared {
 public:
  Shared(std::filesystem::path path, Log log) : path_(std::move(path)), log_(std::move(log)) {}
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() {
    if (inotify_ >= 0) ::close(inotify_);
    if (interrupt_ >= 0) ::close(interrupt_);
  }

  // What the thread sleeps on.
  void prepare();
  // On the thread.
  void watch();

  void add(const Key& key, const LockId& waiter, std::function<void()> wake);
  void remove(const LockId& waiter);
  void end();

 private:
  struct Waiter {
    Key key;
    std::string stored_key;
    std::function<void()> wake;
    bool stalled = false;  // at the last look
  };

  // The time until somebody has to look again, in milliseconds, or -1.
  int look(Store& store);
  void listen_for_bell();
  void interrupt();

  const std::filesystem::path path_;
  const Log log_;
  std::optional<Doorbell> bell_;
  int inotify_ = -1;
  int interrupt_ = -1;

  std::mutex mutex_;
  std::map<LockId, Waiter> waiters_;
  bool ending_ = false;
};

Watcher::Watcher(const std::filesystem::path& path, const Log& log) : shared_(std::make_shared<Shared>(path, log)) {}

Watcher::~Watcher() { shared_->end(); }

asio::awaitable<void> Watcher::close(const CallLimits& limits) {
  shared_->end();
  if (thread_) co_await thread_->ended(limits.deadline, limits.stop);
}

void Watcher::add(const Key& key, const LockId& waiter, std::function<void()> wake) {
  {
    const std::lock_guard lock(mutex_);
    if (!thread_) {
      shared_->prepare();
      thread_.emplace("syncguard-watch", [shared = shared_] { shared->watch(); });
    }
  }
  shared_->add(key, waiter, std::move(wake));
}

void Watcher::remove(const LockId& waiter) { shared_->remove(waiter); }

void Watcher::Shared::prepare() {
  if (inotify_ < 0) inotify_ = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (interrupt_ < 0) interrupt_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  listen_for_bell();
}

void Watcher::Shared::listen_for_bell() {
  bell_.emplace(path_);
  if (inotify_ < 0 || interrupt_ < 0 || inotify_add_watch(inotify_, bell_->path().c_str(), IN_MODIFY) < 0) {
    throw LockError(ErrorCode::rate_limited,
                    "no watch for waiters could be had from the system: " + std::generic_category().message(errno));
  }
}

void Watcher::Shared::add(const Key& key, const LockId& waiter, std::function<void()> wake) {
  {
    const std::lock_guard lock(mutex_);
    waiters_.insert_or_assign(waiter,
                              Waiter{.key = key, .stored_key = Store::stored_key(key), .wake = std::move(wake)});
  }
  interrupt();
}

void Watcher::Shared::remove(const LockId& waiter) {
  const std::lock_guard lock(mutex_);
  waiters_.erase(waiter);
}

void Watcher::Shared::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    waiters_.clear();
  }
  interrupt();
}

void Watcher::Shared::interrupt() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(interrupt_, &one, sizeof one);
}

void Watcher::Shared::watch() {
  std::optional<Store> store;
  int timeout = -1;
  for (;;) {
    std::array<pollfd, 2> events{{{inotify_, POLLIN, 0}, {interrupt_, POLLIN, 0}}};
    poll(events.data(), events.size(), timeout);
    // What exactly changed does not matter; that it was read does.
    alignas(inotify_event) std::array<char, 4096> buffer;
    while (read(inotify_, buffer.data(), buffer.size()) > 0) {
    }
    std::uint64_t count = 0;
    [[maybe_unused]] const auto size = read(interrupt_, &count, sizeof count);
    {
      const std::lock_guard lock(mutex_);
      if (ending_) return;
    }
    try {
      if (store && store->has_moved()) store.reset();
      if (!store) {
        // With the database the bell may be another file, too.
        listen_for_bell();
        store.emplace(path_, Database::Hooks{.keep_waiting = [] { return false; }, .may_write = [] { return true; }});
      }
      timeout = look(*store);
    } catch (const std::exception& error) {
      log_.debug(std::string("a look at the queue failed and is tried again: ") + error.what());
      timeout = look_again_later_ms;
    }
  }
}

int Watcher::Shared::look(Store& store) {
  const auto queues = store.free_queues();
  if (queues.empty()) return -1;
  const auto now = async::system_now();
  std::optional<Timestamp> next;
  const auto look_again_by = [&next](Timestamp time) { next = next ? std::min(*next, time) : time; };
  std::vector<Key> stalled;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [id, waiter] : waiters_) {
      const auto queue = queues.find(waiter.stored_key);
      if (queue == queues.end()) {
        waiter.stalled = false;
        continue;
      }
      const auto prospect = Store::prospect(queue->second, id, now);
      if (prospect.look_again_at) look_again_by(*prospect.look_again_at);
      // Stalled already when it was looked at last: whoever is first had its time.
      if (prospect.stalled && waiter.stalled) stalled.push_back(waiter.key);
      waiter.stalled = prospect.stalled;
      if (prospect.try_now) waiter.wake();
    }
  }
  for (const auto& key : stalled) {
    try {
      store.move_on(key);
    } catch (const LockError& error) {
      // One key's trouble, such as another process that writes, must not hide the others.
      log_.debug(std::string("a queue could not be moved on, which is tried again: ") + error.what());
      look_again_by(async::system_now() + std::chrono::milliseconds(20));
    }
  }
  if (!next) return -1;
  return static_cast<int>(std::clamp<std::int64_t>((*next - async::system_now()).count() + 1, 1, look_again_later_ms));
}

}  // namespace syncguard::sqlite
