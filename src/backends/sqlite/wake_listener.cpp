#include "backends/sqlite/wake_listener.hpp"

#include "os/clocks.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace syncguard::sqlite {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// The pause after a failed check, and the maximum pause before a scheduled one.
constexpr milliseconds retry_interval{1000};
// The pause between two checks: a waiter that does not take its turn costs the next one at most half a second.
constexpr milliseconds poll_interval{200};
// The same if a wake-up file cannot be watched.
constexpr milliseconds fallback_poll_interval{100};
// With many waiters, checking takes longer. Then the pauses are longer, too: this many times as long.
constexpr int pause_per_check = 20;

}  // namespace

class WakeListener::Shared {
 public:
  Shared(std::filesystem::path path, Log log) : path_(std::move(path)), log_(std::move(log)) {}
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() {
    if (inotify_ >= 0) ::close(inotify_);
    if (interrupt_ >= 0) ::close(interrupt_);
  }

  // Opens the descriptors on which the thread sleeps. Throws LockError.
  void prepare();
  // The body of the thread.
  void watch();

  void add(const Key& key, const LockId& waiter, std::function<void()> wake);
  void set_joined(const LockId& waiter);
  void remove(const LockId& waiter);
  void end();

 private:
  struct Waiter {
    Key key;
    std::string stored_key;
    std::function<void()> wake;
    bool has_joined = false;
    bool stalled = false;  // at the last check
  };

  // A wake-up file.
  struct Watch {
    int descriptor = -1;  // of inotify; -1 if it is not watched
    std::size_t waiters = 0;
  };

  // The waiters that may have to be woken because a wake-up file was written or because they are new.
  std::vector<LockId> changed_waiters(Store& store);
  std::vector<LockId> all_waiters();
  [[nodiscard]] Clock::time_point next_recheck() const;
  // Wakes those of the waiters that should try now, and schedules the next check of free keys.
  void check_queues(Store& store, const std::vector<LockId>& waiters);
  // A waiter that lost its turn to another one, or whose entry was removed after its turn, gets no turn from a release.
  // It has to try and join again.
  void wake_waiters_without_place(Store& store, const std::vector<LockId>& waiters);
  // These need the mutex. A file that cannot be watched is logged.
  void begin_watch(unsigned number);
  void end_watch(unsigned number) noexcept;
  // A new database comes with new wake-up files.
  void renew_watches();
  // The longest pause before the next check; nullopt without waiters.
  std::optional<milliseconds> max_pause(Clock::duration check_took);
  void interrupt();
  // Whether a check of the database may take more time.
  bool may_continue();

  const std::filesystem::path path_;
  const Log log_;
  // Used only by the thread.
  Clock::time_point run_until_;  // limits the current check
  // When a waiter must be checked again, even if nothing changes.
  std::multimap<Clock::time_point, LockId> rechecks_;
  int inotify_ = -1;
  int interrupt_ = -1;

  std::mutex mutex_;
  std::map<LockId, Waiter> waiters_;
  std::vector<LockId> new_waiters_;  // since the last check
  std::array<Watch, WakeFiles::count> watches_;
  bool ending_ = false;
};

WakeListener::WakeListener(const std::filesystem::path& path, const Log& log)
    : shared_(std::make_shared<Shared>(path, log)) {}

WakeListener::~WakeListener() { shared_->end(); }

asio::awaitable<void> WakeListener::close(const CallLimits& limits) {
  shared_->end();
  if (thread_) co_await thread_->ended(limits.deadline, limits.stop);
}

void WakeListener::add(const Key& key, const LockId& waiter, std::function<void()> wake) {
  {
    const std::lock_guard lock(mutex_);
    if (!thread_) {
      shared_->prepare();
      thread_.emplace("syncguard-watch", [shared = shared_] { shared->watch(); });
    }
  }
  shared_->add(key, waiter, std::move(wake));
}

void WakeListener::set_joined(const LockId& waiter) { shared_->set_joined(waiter); }

void WakeListener::remove(const LockId& waiter) { shared_->remove(waiter); }

void WakeListener::Shared::prepare() {
  if (interrupt_ < 0) interrupt_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (interrupt_ < 0) {
    throw LockError(ErrorCode::rate_limited,
                    "no file descriptors left for waiters: " + std::generic_category().message(errno));
  }
  // This can fail: by default each user may have 128 inotify instances, and more processes than that may wait.
  if (inotify_ < 0) inotify_ = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
}

void WakeListener::Shared::begin_watch(unsigned number) {
  auto& watch = watches_.at(number);
  const auto file = WakeFiles(Folder(path_)).prepare(number);
  if (inotify_ >= 0 && file) {
    watch.descriptor = inotify_add_watch(inotify_, file->c_str(), IN_MODIFY | IN_DONT_FOLLOW);
  }
  if (watch.descriptor >= 0) return;
  const std::string reason =
      file ? std::generic_category().message(errno) : "it cannot be opened, or is not a regular file with one name";
  log_.debug("a wake-up file beside the database cannot be watched (" + reason +
             "): waiters poll ten times per second");
}

void WakeListener::Shared::end_watch(unsigned number) noexcept {
  auto& watch = watches_.at(number);
  if (watch.descriptor >= 0) inotify_rm_watch(inotify_, watch.descriptor);
  watch.descriptor = -1;
}

void WakeListener::Shared::renew_watches() {
  const std::lock_guard lock(mutex_);
  for (unsigned number = 0; number < WakeFiles::count; ++number) {
    if (watches_.at(number).waiters == 0) continue;
    end_watch(number);
    begin_watch(number);
  }
}

std::optional<milliseconds> WakeListener::Shared::max_pause(Clock::duration check_took) {
  const std::lock_guard lock(mutex_);
  if (waiters_.empty()) return std::nullopt;
  const bool all_watched =
      std::ranges::all_of(watches_, [](const Watch& watch) { return watch.waiters == 0 || watch.descriptor >= 0; });
  const auto took = std::chrono::floor<milliseconds>(check_took);
  return std::max(all_watched ? poll_interval : fallback_poll_interval,
                  pause_per_check * std::min(took, retry_interval));
}

void WakeListener::Shared::add(const Key& key, const LockId& waiter, std::function<void()> wake) {
  {
    const std::lock_guard lock(mutex_);
    const auto number = WakeFiles::number_for(waiter.view());
    const bool is_new = !waiters_.contains(waiter);
    if (is_new && watches_.at(number).waiters == 0) begin_watch(number);
    waiters_.insert_or_assign(waiter,
                              Waiter{.key = key, .stored_key = Store::stored_key(key), .wake = std::move(wake)});
    if (is_new) ++watches_.at(number).waiters;
    new_waiters_.push_back(waiter);
  }
  interrupt();
}

void WakeListener::Shared::set_joined(const LockId& waiter) {
  const std::lock_guard lock(mutex_);
  if (const auto found = waiters_.find(waiter); found != waiters_.end()) found->second.has_joined = true;
}

void WakeListener::Shared::remove(const LockId& waiter) {
  const std::lock_guard lock(mutex_);
  if (waiters_.erase(waiter) == 0) return;
  const auto number = WakeFiles::number_for(waiter.view());
  if (--watches_.at(number).waiters == 0) end_watch(number);
}

void WakeListener::Shared::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    waiters_.clear();
    new_waiters_.clear();
    for (unsigned number = 0; number < WakeFiles::count; ++number) {
      watches_.at(number).waiters = 0;
      end_watch(number);
    }
  }
  interrupt();
}

void WakeListener::Shared::interrupt() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(interrupt_, &one, sizeof one);
}

bool WakeListener::Shared::may_continue() {
  const std::lock_guard lock(mutex_);
  return !ending_ && Clock::now() < run_until_;
}

void WakeListener::Shared::watch() {
  std::optional<Store> store;
  // All waiters are checked then.
  std::optional<Clock::time_point> next_check;
  for (;;) {
    std::array<pollfd, 2> events{{{inotify_, POLLIN, 0}, {interrupt_, POLLIN, 0}}};
    const auto until = std::min(next_check.value_or(Clock::time_point::max()), next_recheck());
    const auto pause = [&] { return std::chrono::ceil<milliseconds>(until - Clock::now()).count(); };
    const bool forever = until == Clock::time_point::max();
    poll(events.data(), events.size(), forever ? -1 : static_cast<int>(std::max<std::int64_t>(pause(), 0)));
    // Only that something changed matters. Unread events would end the next poll at once.
    alignas(inotify_event) std::array<char, 4096> buffer;
    while (read(inotify_, buffer.data(), buffer.size()) > 0) {
    }
    std::uint64_t count = 0;
    [[maybe_unused]] const auto size = read(interrupt_, &count, sizeof count);
    {
      const std::lock_guard lock(mutex_);
      if (ending_) return;
    }
    const auto start = Clock::now();
    run_until_ = start + retry_interval;
    try {
      if (store && store->has_moved()) store.reset();
      if (!store) {
        renew_watches();
        store.emplace(path_, Connection::Hooks{.keep_waiting = [] { return false; },
                                               .keep_running = [this] { return may_continue(); },
                                               .may_write = [] { return true; }});
        next_check = start;
      }
      const bool checks_all = !next_check || start >= *next_check;
      check_queues(*store, checks_all ? all_waiters() : changed_waiters(*store));
      if (checks_all) {
        const auto end = Clock::now();
        const auto limit = max_pause(end - start);
        next_check = limit ? std::optional(end + *limit) : std::nullopt;
      }
    } catch (const std::exception& error) {
      log_.debug(std::string("checking the queue failed and will be retried: ") + error.what());
      rechecks_.clear();
      next_check = Clock::now() + retry_interval;
    }
  }
}

Clock::time_point WakeListener::Shared::next_recheck() const {
  return rechecks_.empty() ? Clock::time_point::max() : rechecks_.begin()->first;
}

std::vector<LockId> WakeListener::Shared::all_waiters() {
  rechecks_.clear();
  const std::lock_guard lock(mutex_);
  new_waiters_.clear();
  std::vector<LockId> ids;
  ids.reserve(waiters_.size());
  for (const auto& [id, waiter] : waiters_) ids.push_back(id);
  return ids;
}

std::vector<LockId> WakeListener::Shared::changed_waiters(Store& store) {
  std::vector<LockId> ids;
  for (const auto now = Clock::now(); next_recheck() <= now; rechecks_.erase(rechecks_.begin())) {
    ids.push_back(rechecks_.begin()->second);
  }
  for (const auto& id : store.waiters_with_turn()) {
    if (LockId::is_valid(id)) ids.emplace_back(id);
  }
  const std::lock_guard lock(mutex_);
  std::ranges::move(std::exchange(new_waiters_, {}), std::back_inserter(ids));
  return ids;
}

void WakeListener::Shared::check_queues(Store& store, const std::vector<LockId>& waiters) {
  std::set<std::string> stored_keys;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& id : waiters) {
      if (const auto found = waiters_.find(id); found != waiters_.end()) stored_keys.insert(found->second.stored_key);
    }
  }
  const auto queues = store.free_queues(stored_keys);
  const auto now = os::system_now();
  const auto recheck_in = [this](milliseconds time, const LockId& waiter) {
    rechecks_.emplace(Clock::now() + std::clamp(time + milliseconds(1), milliseconds(1), retry_interval), waiter);
  };
  std::vector<std::pair<Key, LockId>> stalled;
  std::vector<LockId> waiters_for_held_keys;
  {
    const std::lock_guard lock(mutex_);
    // The keys for which one of the waiters is checked again. Each of them can pass the turn on.
    std::set<std::string_view> observed;
    for (const auto& id : waiters) {
      const auto found = waiters_.find(id);
      if (found == waiters_.end()) continue;
      auto& waiter = found->second;
      const auto queue = queues.find(waiter.stored_key);
      if (queue == queues.end()) {
        waiter.stalled = false;
        if (waiter.has_joined) waiters_for_held_keys.push_back(id);
        continue;
      }
      const auto queue_state = Store::queue_state(queue->second, id, now);
      if (queue_state.try_now) waiter.wake();
      const bool was_stalled = std::exchange(waiter.stalled, queue_state.stalled);
      if (!queue_state.recheck_at || !observed.insert(queue->first).second) continue;
      recheck_in(*queue_state.recheck_at - now, id);
      // It was already stalled at the last check: the first waiter had its chance.
      if (queue_state.stalled && was_stalled) stalled.emplace_back(waiter.key, id);
    }
  }
  wake_waiters_without_place(store, waiters_for_held_keys);
  for (const auto& [key, waiter] : stalled) {
    try {
      store.pass_stalled_turn(key);
    } catch (const LockError& error) {
      // A failure for one key, such as a busy database, must not delay the other keys.
      log_.debug(std::string("passing on a turn failed and will be retried: ") + error.what());
      recheck_in(milliseconds(20), waiter);
    }
  }
}

void WakeListener::Shared::wake_waiters_without_place(Store& store, const std::vector<LockId>& waiters) {
  for (const auto& id : waiters) {
    if (store.has_place(id)) continue;
    const std::lock_guard lock(mutex_);
    if (const auto found = waiters_.find(id); found != waiters_.end()) found->second.wake();
  }
}

}  // namespace syncguard::sqlite
