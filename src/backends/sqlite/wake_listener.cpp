#include "backends/sqlite/wake_listener.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

namespace syncguard::sqlite {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// How long one check of the database may take.
constexpr milliseconds max_check{1000};
// How often to check for turns if a wake-up file cannot be watched.
constexpr milliseconds fallback_interval{100};
// A look takes about ten microseconds, and many processes of the host may wait.
constexpr backends::Waiters::Pace pace{.per_look = std::chrono::microseconds(200)};
constexpr std::size_t max_looks = 64;

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
  void remove(const LockId& waiter);
  void end();
  backends::Waiters& waiters() noexcept { return waiters_; }

 private:
  // A wake-up file.
  struct Watch {
    int descriptor = -1;  // of inotify; -1 if it is not watched
    std::size_t waiters = 0;
  };

  // Wakes the waiters that got a turn.
  void wake_waiters_with_turn(Store& store);
  void look(Store& store, std::span<const backends::Waiters::Look> due);
  // These need the mutex. A file that cannot be watched is logged.
  void begin_watch(unsigned number);
  void end_watch(unsigned number) noexcept;
  // A new database comes with new wake-up files.
  void renew_watches();
  // Whether each wake-up file that has waiters is watched.
  bool is_watching_all();
  void interrupt();
  // Whether a check of the database may take more time.
  bool may_continue();

  const std::filesystem::path path_;
  const Log log_;
  // Used only by the thread.
  Clock::time_point run_until_;  // limits the current check
  int inotify_ = -1;
  int interrupt_ = -1;

  backends::Waiters waiters_{pace, [this] { interrupt(); }};

  std::mutex mutex_;
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

void WakeListener::remove(const LockId& waiter) { shared_->remove(waiter); }

backends::Waiters& WakeListener::waiters() const noexcept { return shared_->waiters(); }

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

bool WakeListener::Shared::is_watching_all() {
  const std::lock_guard lock(mutex_);
  return std::ranges::all_of(watches_, [](const Watch& watch) { return watch.waiters == 0 || watch.descriptor >= 0; });
}

void WakeListener::Shared::add(const Key& key, const LockId& waiter, std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  if (!waiters_.add(waiter, {.key = key, .wake = std::move(wake)})) return;
  const auto number = WakeFiles::number_for(waiter.view());
  if (watches_.at(number).waiters++ == 0) begin_watch(number);
}

void WakeListener::Shared::remove(const LockId& waiter) {
  const std::lock_guard lock(mutex_);
  if (!waiters_.remove(waiter)) return;
  const auto number = WakeFiles::number_for(waiter.view());
  if (--watches_.at(number).waiters == 0) end_watch(number);
}

void WakeListener::Shared::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    for (unsigned number = 0; number < WakeFiles::count; ++number) end_watch(number);
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
  for (;;) {
    std::array<pollfd, 2> events{{{inotify_, POLLIN, 0}, {interrupt_, POLLIN, 0}}};
    const bool is_watching = is_watching_all();
    const auto until =
        std::min(waiters_.next_look(), is_watching ? Clock::time_point::max() : Clock::now() + fallback_interval);
    const auto pause = [&] { return std::chrono::ceil<milliseconds>(until - Clock::now()).count(); };
    const bool forever = until == Clock::time_point::max();
    poll(events.data(), events.size(), forever ? -1 : static_cast<int>(std::max<std::int64_t>(pause(), 0)));
    // Only that something changed matters. Unread events would end the next poll at once.
    bool notified = !is_watching;
    alignas(inotify_event) std::array<char, 4096> buffer;
    while (read(inotify_, buffer.data(), buffer.size()) > 0) notified = true;
    std::uint64_t count = 0;
    [[maybe_unused]] const auto size = read(interrupt_, &count, sizeof count);
    {
      const std::lock_guard lock(mutex_);
      if (ending_) return;
    }
    if (!notified && waiters_.next_look() > Clock::now()) continue;
    run_until_ = Clock::now() + max_check;
    std::vector<backends::Waiters::Look> due;
    try {
      due = waiters_.take_due(Clock::now(), max_looks);
      if (store && store->has_moved()) store.reset();
      if (!store) {
        renew_watches();
        store.emplace(path_, Connection::Hooks{.keep_waiting = [] { return false; },
                                               .keep_running = [this] { return may_continue(); },
                                               .may_write = [] { return true; }});
        waiters_.look_now();
      }
      if (notified) wake_waiters_with_turn(*store);
      look(*store, due);
    } catch (const std::exception& error) {
      log_.debug(std::string("checking the queue failed and will be retried: ") + error.what());
      for (const auto& look : due) waiters_.look_later(look.id);
    }
  }
}

void WakeListener::Shared::wake_waiters_with_turn(Store& store) {
  for (const auto& waiter : store.waiters_with_turn()) waiters_.wake(waiter);
}

void WakeListener::Shared::look(Store& store, std::span<const backends::Waiters::Look> due) {
  if (due.empty()) return;
  const auto replies = store.look(due);
  for (std::size_t i = 0; i < due.size(); ++i) {
    waiters_.looked(due[i].id, replies[i]);
    // It left, perhaps just before this look brought it back.
    if (!waiters_.contains(due[i].id)) store.leave(due[i].key, due[i].id);
  }
}

}  // namespace syncguard::sqlite
