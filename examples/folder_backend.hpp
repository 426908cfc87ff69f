// A custom backend needs five operations on a store that can do one atomic step. This one keeps each key's lock in a
// file, protected by flock(2), for all processes of a host. It has no queue, so clients poll. It passes the contract
// suite (tests/consumer/contract_suite), as your backend should. Reading small local files is fast; slower work belongs
// on another thread, because it must not block the client's I/O thread.
#pragma once

#include <syncguard/backend.hpp>
#include <syncguard/liveness.hpp>
#include <syncguard/storage_key.hpp>

#include <asio/steady_timer.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace example {

namespace sg = syncguard;
using std::chrono::milliseconds;

inline sg::Timestamp system_now() { return std::chrono::floor<milliseconds>(std::chrono::system_clock::now()); }

// The files. Hold a FolderLock to read or write them.
class Folder {
 public:
  // The contents of a file: the fence counter, which is kept forever, and the lock, if there is one.
  struct Entry {
    sg::Key key;
    std::uint64_t fence_counter = 0;
    std::optional<sg::LockRecord> record{};
  };

  explicit Folder(std::filesystem::path path) : path_(std::move(path)) { std::filesystem::create_directories(path_); }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  [[nodiscard]] Entry read(const sg::Key& key) const { return read_file(file_of(key)).value_or(Entry{.key = key}); }

  // A real backend keeps an index from ids to keys. Searching is fast enough for a few files.
  [[nodiscard]] std::optional<Entry> find(const sg::LockId& id) const {
    for (const auto& file : std::filesystem::directory_iterator(path_)) {
      auto entry = read_file(file.path());
      if (entry && entry->record && entry->record->lock_id == id) return entry;
    }
    return std::nullopt;
  }

  // Atomic: after a crash, the old file is intact.
  void write(const Entry& entry) const {
    const auto temporary = path_ / ".new";
    std::ofstream stream(temporary, std::ios::trunc);
    stream << entry.key.str() << '\0' << entry.fence_counter;
    if (entry.record) {
      stream << ' ' << entry.record->lock_id.view() << ' ' << entry.record->fence.value() << ' '
             << entry.record->expires_at.time_since_epoch().count() << ' '
             << entry.record->acquired_at.time_since_epoch().count() << ' ' << entry.record->holder;
    }
    stream.close();
    if (!stream) throw sg::LockError(sg::ErrorCode::service_unavailable, "cannot write to the folder of locks");
    std::filesystem::rename(temporary, file_of(entry.key));
  }

 private:
  // Hashed, because a key may contain characters that a file name may not.
  [[nodiscard]] std::filesystem::path file_of(const sg::Key& key) const { return path_ / sg::storage_hash(key.str()); }

  [[nodiscard]] static std::optional<Entry> read_file(const std::filesystem::path& file) {
    std::ifstream stream(file);
    std::string key;
    if (file.filename().string().starts_with('.') || !std::getline(stream, key, '\0')) return std::nullopt;
    Entry entry{.key = key};
    std::string id;
    std::uint64_t fence = 0;
    std::int64_t expires_at = 0;
    std::int64_t acquired_at = 0;
    stream >> entry.fence_counter;
    if (stream >> id >> fence >> expires_at >> acquired_at) {
      entry.record = sg::LockRecord{.key = key,
                                    .lock_id = sg::LockId(id),
                                    .expires_at = sg::Timestamp(milliseconds(expires_at)),
                                    .acquired_at = sg::Timestamp(milliseconds(acquired_at)),
                                    .fence = sg::Fence(fence)};
      stream.get();
      std::getline(stream, entry.record->holder);
    }
    return entry;
  }

  std::filesystem::path path_;
};

// Exclusive use of the folder, from a successful try_lock() to the destructor. This makes a step atomic.
class FolderLock {
 public:
  explicit FolderLock(const Folder& folder)
      : descriptor_(open((folder.path() / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (descriptor_ < 0) fail();
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock() { close(descriptor_); }

  // Returns false while another process or thread uses the folder.
  [[nodiscard]] bool try_lock() const {
    if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK && errno != EINTR) fail();
    return false;
  }

 private:
  [[noreturn]] static void fail() {
    throw sg::LockError(sg::ErrorCode::service_unavailable, std::generic_category().message(errno));
  }

  int descriptor_;
};

class FolderBackend : public sg::Backend {
 public:
  explicit FolderBackend(std::filesystem::path path) : folder_(std::move(path)) {}

  [[nodiscard]] sg::Capabilities capabilities() const override { return {.name = "folder", .local = true}; }

  asio::awaitable<sg::AcquireReply> acquire(const sg::AcquireRequest& request, const sg::CallLimits& limits) override {
    Step step(folder_);
    co_await step.begin(limits);
    Folder::Entry entry = folder_.read(request.key);
    if (entry.record && sg::is_live(entry.record->expires_at, step.now)) {
      const sg::LockRecord& held = *entry.record;
      if (held.lock_id != request.lock_id) co_return sg::Contended{sg::free_in(held.expires_at, step.now)};
      co_return sg::Granted{held.fence, held.expires_at, std::min(held.expires_at - step.now, request.ttl)};
    }
    if (entry.fence_counter >= sg::Fence::refuse_above) {
      throw sg::LockError(sg::ErrorCode::internal, "the fence counter of this key has reached its limit");
    }
    const sg::Fence fence(++entry.fence_counter);
    entry.record = sg::LockRecord{.key = request.key,
                                  .lock_id = request.lock_id,
                                  .expires_at = step.now + request.ttl,
                                  .acquired_at = step.now,
                                  .fence = fence,
                                  .holder = request.holder};
    folder_.write(entry);
    co_return sg::Granted{fence, step.now + request.ttl, request.ttl};
  }

  asio::awaitable<sg::ReleaseReply> release(const sg::LockId& id, const sg::CallLimits& limits) override {
    Step step(folder_);
    co_await step.begin(limits);
    auto entry = folder_.find(id);
    if (!entry) co_return sg::Missing::not_found;
    if (!sg::is_live(entry->record->expires_at, step.now)) co_return sg::Missing::expired;
    entry->record.reset();
    folder_.write(*entry);
    co_return sg::Released{};
  }

  asio::awaitable<sg::ExtendReply> extend(const sg::LockId& id, milliseconds ttl,
                                          const sg::CallLimits& limits) override {
    Step step(folder_);
    co_await step.begin(limits);
    auto entry = folder_.find(id);
    if (!entry) co_return sg::Missing::not_found;
    if (!sg::is_live(entry->record->expires_at, step.now)) co_return sg::Missing::expired;
    entry->record->expires_at = step.now + ttl;
    folder_.write(*entry);
    co_return sg::Extended{entry->record->expires_at, ttl};
  }

  asio::awaitable<bool> is_locked(const sg::Key& key, const sg::CallLimits& limits) override {
    Step step(folder_);
    co_await step.begin(limits);
    co_return step.live(folder_.read(key).record).has_value();
  }

  asio::awaitable<std::optional<sg::LockRecord>> lookup(const sg::Key& key, const sg::CallLimits& limits) override {
    Step step(folder_);
    co_await step.begin(limits);
    co_return step.live(folder_.read(key).record);
  }

  asio::awaitable<std::optional<sg::LockRecord>> lookup(const sg::LockId& id, const sg::CallLimits& limits) override {
    Step step(folder_);
    co_await step.begin(limits);
    const auto entry = folder_.find(id);
    co_return entry ? step.live(entry->record) : std::nullopt;
  }

 private:
  // One atomic step, from begin() to the destructor.
  struct Step {
    explicit Step(const Folder& folder) : lock(folder) {}

    // Waits for the folder, within the limits. Reads the clock only after it has the folder.
    asio::awaitable<void> begin(const sg::CallLimits& limits) {
      asio::steady_timer pause(co_await asio::this_coro::executor);
      for (;;) {
        if (limits.stop.stop_requested()) throw sg::LockError(sg::ErrorCode::aborted, "a stop was requested");
        if (lock.try_lock()) break;
        if (std::chrono::steady_clock::now() >= limits.deadline) {
          throw sg::LockError(sg::ErrorCode::network_timeout, "timed out waiting for the lock of the folder");
        }
        pause.expires_after(milliseconds(1));
        co_await pause.async_wait(asio::use_awaitable);
      }
      now = system_now();
    }

    [[nodiscard]] std::optional<sg::LockRecord> live(const std::optional<sg::LockRecord>& record) const {
      return record && sg::is_live(record->expires_at, now) ? record : std::nullopt;
    }

    const FolderLock lock;
    sg::Timestamp now{};
  };

  const Folder folder_;
};

}  // namespace example
