#include "backends/sqlite/diagnosis.hpp"
#include "backends/sqlite/session.hpp"
#include "backends/sqlite/wake_listener.hpp"
#include "core/expiry.hpp"
#include "core/findings.hpp"

#include <syncguard/sqlite.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

namespace syncguard {
inline namespace v0_1 {
namespace {

using sqlite::Store;

// Shared by the backend and its tickets, which may outlive it.
struct Database {
  Database(const std::filesystem::path& path, const Log& log) : session(path), wake_listener(path, log) {}

  sqlite::Session session;
  sqlite::WakeListener wake_listener;
};

class SqliteTicket : public WaitTicket {
 public:
  SqliteTicket(std::shared_ptr<Database> database, Key key, const LockId& waiter)
      : database_(std::move(database)), key_(std::move(key)), waiter_(waiter) {}
  ~SqliteTicket() override { database_->wake_listener.remove(waiter_); }

  asio::awaitable<void> rejoin(const CallLimits& limits) override {
    auto& waiters = database_->wake_listener.waiters();
    const core::WaiterRequest request{.waiter = waiter_, .place = waiters.place(waiter_)};
    auto step = [key = key_, request](Store& store) { return store.join(key, request); };
    const auto reply = co_await database_->session.run(std::move(step), limits);
    free_in_ = reply.free_in;
    waiters.joined(waiter_, reply, request.reservation);
  }

  asio::awaitable<void> leave(const CallLimits& limits) override {
    database_->wake_listener.remove(waiter_);
    return database_->session.run([key = key_, waiter = waiter_](Store& store) { store.leave(key, waiter); }, limits);
  }

  [[nodiscard]] std::optional<std::chrono::milliseconds> free_in() const noexcept override { return free_in_; }
  [[nodiscard]] bool notices_expiry() const noexcept override { return true; }

 private:
  const std::shared_ptr<Database> database_;
  const Key key_;
  const LockId waiter_;
  std::optional<std::chrono::milliseconds> free_in_;
};

class SqliteBackend : public Backend {
 public:
  SqliteBackend(const SqliteOptions& options, const Log& log)
      : path_(std::filesystem::absolute(options.path)),
        database_(std::make_shared<Database>(path_, log)),
        fences_(options.fences),
        cleanup_in_is_locked_(options.cleanup_in_is_locked) {}

  [[nodiscard]] Capabilities capabilities() const override {
    return {.name = "sqlite", .fences = fences_, .local = true};
  }

  void on_locks_gone(std::function<void()> gone) override { database_->session.on_database_gone(std::move(gone)); }

  asio::awaitable<AcquireReply> acquire(const AcquireRequest& request, const CallLimits& limits) override {
    auto step = [request, fences = fences_](Store& store) { return store.acquire(request, fences); };
    const auto reply = co_await database_->session.run(std::move(step), limits);
    if (const auto* granted = std::get_if<Granted>(&reply)) database_->session.watch_database_for(granted->remaining);
    co_return reply;
  }

  asio::awaitable<ReleaseReply> release(const LockId& id, const CallLimits& limits) override {
    return database_->session.run([id](Store& store) { return store.release(id); }, limits);
  }

  asio::awaitable<ExtendReply> extend(const LockId& id, std::chrono::milliseconds ttl,
                                      const CallLimits& limits) override {
    auto step = [id, ttl](Store& store) { return store.extend(id, ttl); };
    const auto reply = co_await database_->session.run(std::move(step), limits);
    if (const auto* extended = std::get_if<Extended>(&reply))
      database_->session.watch_database_for(extended->remaining);
    co_return reply;
  }

  asio::awaitable<bool> is_locked(const Key& key, const CallLimits& limits) override {
    auto step = [key](Store& store) { return store.find_live(key).has_value(); };
    const bool locked = co_await database_->session.run(std::move(step), limits);
    if (!locked && cleanup_in_is_locked_ && cleanup_pace_.may_clean_up(std::chrono::steady_clock::now())) clean_up(key);
    co_return locked;
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const Key& key, const CallLimits& limits) override {
    return database_->session.run([key](Store& store) { return store.find_live(key); }, limits);
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const LockId& id, const CallLimits& limits) override {
    return database_->session.run([id](Store& store) { return store.find_live(id); }, limits);
  }

  asio::awaitable<std::unique_ptr<WaitTicket>> join(const AcquireRequest& request, std::function<void()> wake,
                                                    const CallLimits& limits) override {
    const auto& key = request.key;
    const auto& waiter = request.lock_id;
    // Listens before it joins, so that no wake-up in between is missed.
    database_->wake_listener.add(key, waiter, std::move(wake));
    auto ticket = std::make_unique<SqliteTicket>(database_, key, waiter);
    try {
      co_await ticket->rejoin(limits);
    } catch (const LockError&) {
      // It may still have joined the queue, and nothing else would remove its entry.
      database_->session.run_in_background([key, waiter](Store& store) { store.leave(key, waiter); });
      throw;
    }
    co_return ticket;
  }

  asio::awaitable<std::vector<Finding>> diagnose(const CallLimits& limits) override {
    async::expect_no_stop(limits.stop);
    auto findings = sqlite::check_path(path_);
    const bool is_refused = std::ranges::any_of(findings, [](const Finding& finding) {
      return (finding.check == "file system" || finding.check == "names of the file") &&
             finding.verdict == Finding::Verdict::failure;
    });
    // Opening the database would create it.
    std::error_code unreachable;
    if (is_refused || !std::filesystem::exists(path_, unreachable)) co_return findings;
    try {
      core::LatencyCheck latency_check;
      for (int i = 0; i < core::LatencyCheck::requests; ++i) {
        auto probe = [](Store& store) { return store.find_live(LockId::generate()).has_value(); };
        const auto sent_at = std::chrono::steady_clock::now();
        co_await database_->session.run(std::move(probe), limits);
        // No clock skew: the store uses this host's clock.
        latency_check.add(std::chrono::steady_clock::now() - sent_at, std::nullopt);
      }
      latency_check.report(findings);
      auto examine = [](Store& store) { return store.health(); };
      const auto health =
          co_await database_->session.run(std::move(examine), limits, sqlite::Session::Where::on_thread);
      findings.push_back(core::fine("writable", "yes"));
      for (auto& finding : sqlite::examine(health, fences_)) findings.push_back(std::move(finding));
    } catch (const LockError& error) {
      findings.push_back(core::unreachable(error));
    }
    co_return findings;
  }

  asio::awaitable<std::string> setup(const CallLimits& limits) override {
    std::error_code ignored;
    const bool existed = std::filesystem::exists(path_, ignored);
    // Opening the database creates it. An existing database may lack an index.
    auto step = [](Store& store) { store.complete_schema(); };
    co_await database_->session.run(std::move(step), limits, sqlite::Session::Where::on_thread);
    co_return "the database " + path_.string() + (existed ? " already exists" : " was created");
  }

  [[nodiscard]] std::string setup_script() const override { return sqlite::setup_script(); }

  asio::awaitable<CleanupReply> clean_up(const CleanupRequest& request, const CallLimits& limits) override {
    return database_->session.run([request](Store& store) { return store.clean_up(request); }, limits);
  }

  asio::awaitable<LockPage> list(const ListRequest& request, const CallLimits& limits) override {
    return database_->session.run([request](Store& store) { return store.list(request); }, limits);
  }

  asio::awaitable<KeyState> inspect(const Key& key, const CallLimits& limits) override {
    return database_->session.run([key](Store& store) { return store.inspect(key); }, limits);
  }

  asio::awaitable<bool> break_lock(const Key& key, Fence fence, const CallLimits& limits) override {
    return database_->session.run([key, fence](Store& store) { return store.break_lock(key, fence); }, limits);
  }

  asio::awaitable<Fence> raise_fence(const Key& key, Fence fence, const CallLimits& limits) override {
    return database_->session.run([key, fence](Store& store) { return store.raise_fence(key, fence); }, limits);
  }

  asio::awaitable<void> close(const CallLimits& limits) override {
    co_await database_->wake_listener.close(limits);
    co_await database_->session.close(limits);
  }

 private:
  // In the background, because the caller need not wait for it.
  void clean_up(const Key& key) {
    database_->session.run_in_background([key](Store& store) { store.remove_if_long_dead(key); });
  }

  const std::filesystem::path path_;
  const std::shared_ptr<Database> database_;
  const FenceSource fences_;
  const bool cleanup_in_is_locked_;
  core::CleanupPace cleanup_pace_;
};

}  // namespace

std::unique_ptr<Backend> make_sqlite_backend(SqliteOptions options, Log log) {
  if (options.path.empty()) throw LockError(ErrorCode::invalid_argument, "the SQLite backend needs a path");
  try {
    return std::make_unique<SqliteBackend>(options, log);
  } catch (const std::system_error& error) {
    throw LockError(ErrorCode::internal,
                    std::string("cannot start a thread of the SQLite backend: ") + error.what() +
                        "; raise the limit of threads (ulimit -u, or that of the container)",
                    Effect::none, {.cause = std::current_exception()});
  }
}

std::filesystem::path default_sqlite_path() {
  const auto folder = [](const char* variable) {
    const char* value = std::getenv(variable);
    return std::filesystem::path(value != nullptr ? value : "");
  };
  // The XDG specification says that relative paths must be ignored.
  if (const auto state = folder("XDG_STATE_HOME"); state.is_absolute()) return state / "syncguard" / "locks.db";
  if (const auto home = folder("HOME"); home.is_absolute()) {
    return home / ".local" / "state" / "syncguard" / "locks.db";
  }
  throw LockError(ErrorCode::invalid_argument,
                  "neither XDG_STATE_HOME nor HOME is set: give a path, as in sqlite:PATH");
}

}  // namespace v0_1
}  // namespace syncguard
