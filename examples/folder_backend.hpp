// A backend of your own: five operations over whatever can do one atomic step. This one keeps its locks in a file per
// key, guarded by flock(2), which serves all processes of a host. It does without a queue: clients then poll. It passes
// the contract suite (tests/consumer/contract_suite), which is what you should ask of yours. Small local files answer
// at once; what may take longer belongs on a thread of its own, because the client's must not wait for it.
#pragma once

#include <syncguard/backend.hpp>

#include <asio/steady_timer.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

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

// Every backend uses this predicate: a lock lives for a second longer than it says, since clocks may disagree.
inline bool is_live(sg::Timestamp expires_at, sg::Timestamp now) { return expires_at > now - milliseconds(1000); }
inline milliseconds free_in(sg::Timestamp expires_at, sg::Timestamp now) {
  return expires_at + milliseconds(1000) - now;
}

// The files. Whoever reads or writes them holds a FolderLock.
class Folder {
 public:
  // What one file holds: the counter, which stays for ever, and the lock, if there is one.
  struct Entry {
    sg::Key key;
    std::uint64_t fence_counter = 0;
    std::optional<sg::LockRecord> record{};
  };

  explicit Folder(std::filesystem::path path) : path_(std::move(path)) { std::filesystem::create_directories(path_); }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  [[nodiscard]] Entry read(const sg::Key& key) const { return read_file(file_of(key)).value_or(Entry{.key = key}); }

  // A real backend keeps an index from ids to keys; a handful of files can be searched.
  [[nodiscard]] std::optional<Entry> find(const sg::LockId& id) const {
    for (const auto& file : std::filesystem::directory_iterator(path_)) {
      auto entry = read_file(file.path());
      if (entry && entry->record && entry->record->lock_id == id) return entry;
    }
    return std::nullopt;
  }

  // All or nothing: a crash leaves the old file.
  void write(const Entry& entry) const {
    const auto temporary = path_ / ".new";
    std::ofstream stream(temporary, std::ios::trunc);
    stream << entry.key.str() << '\0' << entry.fence_counter;
    if (entry.record) {
      stream << ' ' << entry.record->lock_id.view() << ' ' << entry.record->fence.value() << ' '
             << entry.record->expires_at.time_since_epoch().count() << ' '
             << entry.record->acquired_at.time_since_epoch().count();
    }
    stream.close();
    if (!stream) throw sg::LockError(sg::ErrorCode::service_unavailable, "the folder cannot be written");
    std::filesystem::rename(temporary, file_of(entry.key));
  }

 private:
  [[nodiscard]] std::filesystem::path file_of(const sg::Key& key) const { return path_ / sg::hash_key(key.str()); }

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
    }
    return entry;
  }

  std::filesystem::path path_;
};

// Exclusive use of the folder, from when it was had until this is destroyed: what makes a step atomic.
class FolderLock {
 public:
  explicit FolderLock(const Folder& folder)
      : descriptor_(open((folder.path() / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (descriptor_ < 0) fail();
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock() { close(descriptor_); }

  // False while somebody else has it.
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

  [[nodiscard]] sg::Capabilities capabilities() const override { return {.name = "folder"}; }

  asio::awaitable<sg::AcquireReply> acquire(const sg::AcquireRequest& request, const sg::CallLimits& limits) override {
    Step step(folder_);
    co_await step.begin(limits);
    Folder::Entry entry = folder_.read(request.key);
    if (entry.record && is_live(entry.record->expires_at, step.now)) {
      const sg::LockRecord& held = *entry.record;
      if (held.lock_id != request.lock_id) co_return sg::Contended{free_in(held.expires_at, step.now)};
      co_return sg::Granted{held.fence, held.expires_at, held.expires_at - step.now};
    }
    if (entry.fence_counter >= sg::Fence::refuse_above) {
      throw sg::LockError(sg::ErrorCode::internal, "the fence counter of this key has reached its limit");
    }
    const sg::Fence fence(++entry.fence_counter);
    entry.record = sg::LockRecord{request.key, request.lock_id, step.now + request.ttl, step.now, fence};
    folder_.write(entry);
    co_return sg::Granted{fence, step.now + request.ttl, request.ttl};
  }

  asio::awaitable<sg::ReleaseReply> release(const sg::LockId& id, const sg::CallLimits& limits) override {
    Step step(folder_);
    co_await step.begin(limits);
    auto entry = folder_.find(id);
    if (!entry) co_return sg::Missing::not_found;
    if (!is_live(entry->record->expires_at, step.now)) co_return sg::Missing::expired;
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
    if (!is_live(entry->record->expires_at, step.now)) co_return sg::Missing::expired;
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
  // One atomic step, from begin() until it is destroyed.
  struct Step {
    explicit Step(const Folder& folder) : lock(folder) {}

    // Waits until the folder is ours, no longer than the limits allow, and reads the time only then.
    asio::awaitable<void> begin(const sg::CallLimits& limits) {
      asio::steady_timer pause(co_await asio::this_coro::executor);
      for (;;) {
        if (limits.stop.stop_requested()) throw sg::LockError(sg::ErrorCode::aborted, "a stop was requested");
        if (lock.try_lock()) break;
        if (std::chrono::steady_clock::now() >= limits.deadline) {
          throw sg::LockError(sg::ErrorCode::network_timeout, "others kept the folder until the time-out");
        }
        pause.expires_after(milliseconds(1));
        co_await pause.async_wait(asio::use_awaitable);
      }
      now = system_now();
    }

    [[nodiscard]] std::optional<sg::LockRecord> live(const std::optional<sg::LockRecord>& record) const {
      return record && is_live(record->expires_at, now) ? record : std::nullopt;
    }

    const FolderLock lock;
    sg::Timestamp now{};
  };

  const Folder folder_;
};

}  // namespace example
