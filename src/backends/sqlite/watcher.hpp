// Tells waiters that something in the database changed for them.
#pragma once

#include "backends/sqlite/store.hpp"

#include <syncguard/log.hpp>

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

namespace syncguard::sqlite {

// A thread, started with the first waiter, that sleeps until the doorbell rings (inotify), then looks into the database
// by a connection of its own. It writes only to move a queue on whose first does not come.
class Watcher {
 public:
  Watcher(std::filesystem::path path, Log log);
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  ~Watcher();
  // Ends the thread and gives the file back. Nobody is woken any more.
  void close();

  // Calls wake, on the watcher's thread, when the waiter should try. The watch is in force when this returns. Throws
  // LockError if the system has none left.
  void add(const Key& key, const LockId& waiter, std::function<void()> wake);
  // wake is not called any more once this has returned.
  void remove(const LockId& waiter);

 private:
  struct Waiter {
    Key key;
    std::string stored_key;
    std::function<void()> wake;
    bool stalled = false;  // at the last look
  };

  void start();
  void watch();
  // The time until somebody has to look again, in milliseconds, or -1.
  int look(Store& store);
  void interrupt();

  const std::filesystem::path path_;
  const Log log_;
  std::mutex mutex_;
  std::map<LockId, Waiter> waiters_;
  bool ending_ = false;
  std::optional<Doorbell> bell_;
  int inotify_ = -1;
  int interrupt_ = -1;
  std::thread thread_;
};

}  // namespace syncguard::sqlite
