#include "backends/sqlite/diagnosis.hpp"
#include "backends/sqlite/watcher.hpp"
#include "backends/sqlite/worker.hpp"
#include "core/cleanup_pace.hpp"
#include "core/findings.hpp"

#include <syncguard/sqlite.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <utility>

namespace syncguard {
namespace {

using sqlite::Store;

// One spelling per file, whatever the working directory will be, and never one that means something else to SQLite
// (such as ":memory:").
std::filesystem::path resolved(const std::filesystem::path& path) {
  std::error_code error;
  const auto canonical = std::filesystem::weakly_canonical(path, error);
  return std::filesystem::absolute(error ? path : canonical);
}

// What tickets share with their backend, and may outlive it by.
struct Parts {
  Parts(const std::filesystem::path& path, const Log& log) : worker(path), watcher(path, log) {}

  sqlite::Worker worker;
  sqlite::Watcher watcher;
};

class SqliteTicket : public WaitTicket {
 public:
  SqliteTicket(std::shared_ptr<Parts> parts, Key key, const LockId& waiter)
      : parts_(std::move(parts)), key_(std::move(key)), waiter_(waiter) {}
  ~SqliteTicket() override { parts_->watcher.remove(waiter_); }

  asio::awaitable<void> rejoin(const CallLimits& limits) override {
    std::function<bool(Store&)> step = [key = key_, waiter = waiter_](Store& store) {
      store.join(key, waiter);
      return true;
    };
    co_await parts_->worker.run(std::move(step), limits);
  }

  asio::awaitable<void> leave(const CallLimits& limits) override {
    parts_->watcher.remove(waiter_);
    std::function<bool(Store&)> step = [key = key_, waiter = waiter_](Store& store) {
      store.leave(key, waiter);
      return true;
    };
    co_await parts_->worker.run(std::move(step), limits);
  }

 private:
  const std::shared_ptr<Parts> parts_;
  const Key key_;
  const LockId waiter_;
};

class SqliteBackend : public Backend {
 public:
  SqliteBackend(const SqliteOptions& options, const Log& log)
      : path_(resolved(options.path)),
        parts_(std::make_shared<Parts>(path_, log)),
        cleanup_in_is_locked_(options.cleanup_in_is_locked) {}

  [[nodiscard]] Capabilities capabilities() const override { return {.name = "sqlite"}; }

  asio::awaitable<AcquireReply> acquire(const AcquireRequest& request, const CallLimits& limits) override {
    std::function<AcquireReply(Store&)> step = [request](Store& store) { return store.acquire(request); };
    co_return co_await parts_->worker.run(std::move(step), limits);
  }

  asio::awaitable<ReleaseReply> release(const LockId& id, const CallLimits& limits) override {
    std::function<ReleaseReply(Store&)> step = [id](Store& store) { return store.release(id); };
    co_return co_await parts_->worker.run(std::move(step), limits);
  }

  asio::awaitable<ExtendReply> extend(const LockId& id, std::chrono::milliseconds ttl,
                                      const CallLimits& limits) override {
    std::function<ExtendReply(Store&)> step = [id, ttl](Store& store) { return store.extend(id, ttl); };
    co_return co_await parts_->worker.run(std::move(step), limits);
  }

  asio::awaitable<bool> is_locked(const Key& key, const CallLimits& limits) override {
    std::function<bool(Store&)> step = [key](Store& store) { return store.find_live(key).has_value(); };
    const bool locked = co_await parts_->worker.run(std::move(step), limits);
    if (!locked && cleanup_in_is_locked_ && cleanup_pace_.may_clean_up(std::chrono::steady_clock::now())) clean_up(key);
    co_return locked;
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const Key& key, const CallLimits& limits) override {
    std::function<std::optional<LockRecord>(Store&)> step = [key](Store& store) { return store.find_live(key); };
    co_return co_await parts_->worker.run(std::move(step), limits);
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const LockId& id, const CallLimits& limits) override {
    std::function<std::optional<LockRecord>(Store&)> step = [id](Store& store) { return store.find_live(id); };
    co_return co_await parts_->worker.run(std::move(step), limits);
  }

  asio::awaitable<std::unique_ptr<WaitTicket>> join(const Key& key, const LockId& waiter, std::function<void()> wake,
                                                    const CallLimits& limits) override {
    // The watch first: what happens between it and the place in the queue is then seen.
    parts_->watcher.add(key, waiter, std::move(wake));
    auto ticket = std::make_unique<SqliteTicket>(parts_, key, waiter);
    try {
      co_await ticket->rejoin(limits);
    } catch (const LockError&) {
      // It may have got its place all the same, and nobody would give that up.
      parts_->worker.run_in_background([key, waiter](Store& store) { store.leave(key, waiter); });
      throw;
    }
    co_return ticket;
  }

  asio::awaitable<std::vector<Finding>> diagnose(const CallLimits& limits) override {
    async::expect_no_stop(limits.stop);
    auto findings = sqlite::examine_place(path_);
    const bool hopeless = std::ranges::any_of(findings, [](const Finding& finding) {
      return finding.check == "file system" && finding.verdict == Finding::Verdict::failure;
    });
    // To open it would make it.
    std::error_code unreachable;
    if (hopeless || !std::filesystem::exists(path_, unreachable)) co_return findings;
    try {
      core::Contact contact;
      for (int i = 0; i < core::Contact::requests; ++i) {
        std::function<bool(Store&)> look = [](Store& store) { return store.find_live(LockId::generate()).has_value(); };
        const auto sent_at = std::chrono::steady_clock::now();
        co_await parts_->worker.run(std::move(look), limits);
        // Its clock is this host's.
        contact.answered(std::chrono::steady_clock::now() - sent_at, std::nullopt);
      }
      contact.report(findings);
      std::function<Store::Health(Store&)> examine = [](Store& store) { return store.health(); };
      const auto health = co_await parts_->worker.run(std::move(examine), limits, sqlite::Worker::Where::on_worker);
      findings.push_back(core::fine("writable", "yes"));
      for (auto& finding : sqlite::examine(health)) findings.push_back(std::move(finding));
    } catch (const LockError& error) {
      findings.push_back(core::obstacle(error));
    }
    co_return findings;
  }

  asio::awaitable<std::string> setup(const CallLimits& limits) override {
    std::error_code ignored;
    const bool existed = std::filesystem::exists(path_, ignored);
    // To open it makes it. In one that was there, an index may have been removed.
    std::function<bool(Store&)> step = [](Store& store) {
      store.complete_schema();
      return true;
    };
    co_await parts_->worker.run(std::move(step), limits);
    co_return "the database " + path_.string() + (existed ? " was there already" : " was made");
  }

  asio::awaitable<void> close(const CallLimits& limits) override {
    co_await parts_->watcher.close(limits);
    co_await parts_->worker.close(limits);
  }

 private:
  // In the background: the caller has its answer.
  void clean_up(const Key& key) {
    parts_->worker.run_in_background([key](Store& store) { store.remove_if_long_dead(key); });
  }

  const std::filesystem::path path_;
  const std::shared_ptr<Parts> parts_;
  const bool cleanup_in_is_locked_;
  core::CleanupPace cleanup_pace_;
};

}  // namespace

std::unique_ptr<Backend> make_sqlite_backend(SqliteOptions options, Log log) {
  if (options.path.empty()) throw LockError(ErrorCode::invalid_argument, "the embedded backend needs a path");
  return std::make_unique<SqliteBackend>(options, log);
}

std::filesystem::path default_sqlite_path() {
  const auto folder = [](const char* variable) {
    const char* value = std::getenv(variable);
    return std::filesystem::path(value != nullptr ? value : "");
  };
  // Relative paths in XDG variables are to be ignored, says their specification.
  if (const auto state = folder("XDG_STATE_HOME"); state.is_absolute()) return state / "syncguard" / "locks.db";
  if (const auto home = folder("HOME"); home.is_absolute()) {
    return home / ".local" / "state" / "syncguard" / "locks.db";
  }
  throw LockError(ErrorCode::invalid_argument,
                  "neither XDG_STATE_HOME nor HOME is set: name a path, as in sqlite:PATH");
}

}  // namespace syncguard
