// Tells waiters that something in the database changed for them.
#pragma once

#include "async/loose_thread.hpp"
#include "backends/sqlite/store.hpp"

#include <syncguard/log.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

namespace syncguard::sqlite {

// A thread, started with the first waiter, that sleeps until the doorbell rings (inotify), then looks into the database
// by a connection of its own. It writes only to move a queue on whose first does not come.
class Watcher {
 public:
  Watcher(const std::filesystem::path& path, const Log& log);
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  // A thread that the disk does not let go is left behind after a moment.
  ~Watcher();
  // Ends the thread and gives the file back. Nobody is woken any more.
  asio::awaitable<void> close(const CallLimits& limits);

  // Calls wake, on the watcher's thread, when the waiter should try. The watch is in force when this returns. Throws
  // LockError if the system has none left.
  void add(const Key& key, const LockId& waiter, std::function<void()> wake);
  // wake is not called any more once this has returned.
  void remove(const LockId& waiter);

 private:
  // Shared with the thread.
  class Shared;

  const std::shared_ptr<Shared> shared_;
  std::mutex mutex_;
  std::optional<async::LooseThread> thread_;  // guarded by the mutex until it was started
};

}  // namespace syncguard::sqlite
