// Wakes waiters when the database changes.
#pragma once

#include "async/detachable_thread.hpp"
#include "backends/sqlite/store.hpp"

#include <syncguard/log.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

namespace syncguard::sqlite {

// A thread, started with the first waiter, that sleeps until a wake-up file of its waiters is written (inotify), or
// until a waiter has to look at its key. It then reads the database through its own connection. If it cannot watch a
// file, it checks ten times per second whether one of its waiters got a turn.
class WakeListener {
 public:
  WakeListener(const std::filesystem::path& path, const Log& log);
  WakeListener(const WakeListener&) = delete;
  WakeListener& operator=(const WakeListener&) = delete;
  // If the thread hangs on the disk, it is detached after a short wait.
  ~WakeListener();
  // Ends the thread and closes the file. No waiter is woken after this returns.
  asio::awaitable<void> close(const CallLimits& limits);

  // After this returns, wake is called (on the listener's thread) when the waiter should try. Call this before the
  // waiter joins the queue, and waiters().joined() afterwards. Throws LockError if the system has no file descriptors
  // left.
  void add(const Key& key, const LockId& waiter, std::function<void()> wake);
  void remove(const LockId& waiter);
  [[nodiscard]] backends::Waiters& waiters() const noexcept;

 private:
  // Shared with the thread.
  class Shared;

  const std::shared_ptr<Shared> shared_;
  std::mutex mutex_;
  std::optional<async::DetachableThread> thread_;  // guarded by mutex_ until the thread has started
};

}  // namespace syncguard::sqlite
