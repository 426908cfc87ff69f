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

// A thread, started with the first waiter, that sleeps until a wake-up file of its waiters is written (inotify), then
// checks the database through its own connection. It also checks about four times per second, because no file is
// written when a waiter does not take its turn, and ten times per second if it cannot watch a file. It writes only to
// pass on a turn that the first waiter does not take.
class WakeListener {
 public:
  WakeListener(const std::filesystem::path& path, const Log& log);
  WakeListener(const WakeListener&) = delete;
  WakeListener& operator=(const WakeListener&) = delete;
  // If the thread hangs on the disk, it is detached after a short wait.
  ~WakeListener();
  // Ends the thread and closes the file. No waiter is woken after this returns.
  asio::awaitable<void> close(const CallLimits& limits);

  // The calls for one waiter, in this order:
  //
  //   add(key, waiter, wake);  // 1. before it joins the queue in the database, so that no change is missed
  //   set_joined(waiter);      // 2. after it has joined
  //   remove(waiter);          // 3. when it stops waiting
  //
  // A waiter that joins the queue again repeats step 2.

  // After this returns, wake is called (on the listener's thread) when the waiter should try. Throws LockError if the
  // system has no file descriptors left.
  void add(const Key& key, const LockId& waiter, std::function<void()> wake);
  // From now on, the waiter is also woken if it has lost its place in the queue.
  void set_joined(const LockId& waiter);
  // After this returns, wake is not called any more.
  void remove(const LockId& waiter);

 private:
  // Shared with the thread.
  class Shared;

  const std::shared_ptr<Shared> shared_;
  std::mutex mutex_;
  std::optional<async::DetachableThread> thread_;  // guarded by mutex_ until the thread has started
};

}  // namespace syncguard::sqlite
