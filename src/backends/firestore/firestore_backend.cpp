#include "async/spawn.hpp"
#include "backends/firestore/courtesy.hpp"
#include "backends/firestore/database.hpp"
#include "backends/firestore/diagnosis.hpp"
#include "backends/firestore/listener.hpp"
#include "core/bounded.hpp"
#include "core/cleanup_pace.hpp"
#include "core/fence_limit.hpp"
#include "core/liveness.hpp"
#include "core/random.hpp"

#include <asio/this_coro.hpp>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace syncguard {
namespace {

using firestore::Channel;
using firestore::Database;
using firestore::Endpoint;
using firestore::Listener;
using firestore::Names;
using firestore::wire::Document;
using firestore::wire::Write;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How often an operation that lost a race is run again before it gives up, and how long it waits at most before the
// first time.
constexpr int most_reruns = 5;
constexpr std::chrono::microseconds rerun_delay{10'000};

// Never for the same time, so that those who met once do not meet again.
asio::awaitable<void> pause_before_rerun(int rerun, CallLimits limits) {
  const auto pause = core::random_between(std::chrono::microseconds::zero(), rerun_delay * (1 << rerun));
  const auto nobody_wakes_it = std::make_shared<async::WakeUp>();
  const auto until = std::min(limits.deadline, steady_clock::now() + pause);
  co_await nobody_wakes_it->wait(until, limits.stop);
}

// Calls attempt until what its coroutine gives is not nothing, which stands for a lost race.
template <typename Result, typename Attempt>
asio::awaitable<Result> until_no_race_is_lost(Attempt attempt, CallLimits limits) {
  for (int rerun = 0;; ++rerun) {
    std::optional<Result> result = co_await attempt();
    if (result) co_return std::move(*result);
    if (rerun == most_reruns) {
      throw LockError(ErrorCode::service_unavailable, "others kept changing the lock's documents at the same time");
    }
    co_await pause_before_rerun(rerun, limits);
  }
}

// What is read before a lock is granted.
struct LockAndCounter {
  std::optional<Document> lock_document;
  std::optional<Document> counter_document;
  std::optional<LockRecord> lock;
  // The newest fence: the counter's, or that of the lock if somebody has tampered with the counter.
  Fence newest_fence;
  // This host's time when it had been read.
  Timestamp now;

  [[nodiscard]] bool is_held() const { return lock && core::is_live(lock->expires_at, now); }
};

class FirestoreTicket : public WaitTicket {
 public:
  FirestoreTicket(std::shared_ptr<Listener> listener, std::string document, const LockId& waiter,
                  std::function<void()> wake)
      : listener_(std::move(listener)), document_(std::move(document)), waiter_(waiter), wake_(std::move(wake)) {}
  ~FirestoreTicket() override { listener_->remove(document_, waiter_); }

  asio::awaitable<void> rejoin(const CallLimits& limits) override {
    co_await listener_->add(document_, waiter_, wake_, limits);
  }
  asio::awaitable<void> leave(const CallLimits& /*limits*/) override {
    listener_->remove(document_, waiter_);
    co_return;
  }

 private:
  const std::shared_ptr<Listener> listener_;
  const std::string document_;
  const LockId waiter_;
  const std::function<void()> wake_;
};

class FirestoreBackend : public Backend {
 public:
  FirestoreBackend(const FirestoreOptions& options, Endpoint endpoint, Log log)
      : operation_timeout_(options.operation_timeout),
        cleanup_in_is_locked_(options.cleanup_in_is_locked),
        is_emulator_(endpoint.is_emulator),
        log_(log),
        names_(endpoint.database_name(), options.collection, options.fence_collection) {
    channel_ = std::make_shared<Channel>(std::move(endpoint));
    database_ = std::make_shared<Database>(channel_, names_, options, std::move(log));
    listener_ = std::make_shared<Listener>(channel_);
  }

  [[nodiscard]] Capabilities capabilities() const override {
    return {.name = "firestore", .time_authority = TimeAuthority::client, .operation_timeout = operation_timeout_};
  }
  [[nodiscard]] std::optional<milliseconds> clock_skew() const noexcept override { return database_->clock_skew(); }

  asio::awaitable<AcquireReply> acquire(const AcquireRequest& request, const CallLimits& limits) override {
    const auto attempt = [&] { return try_to_acquire(request, limits); };
    co_return co_await until_no_race_is_lost<AcquireReply>(attempt, limits);
  }
  asio::awaitable<ReleaseReply> release(const LockId& id, const CallLimits& limits) override {
    const auto attempt = [&] { return try_to_release(id, limits); };
    co_return co_await until_no_race_is_lost<ReleaseReply>(attempt, limits);
  }
  asio::awaitable<ExtendReply> extend(const LockId& id, milliseconds ttl, const CallLimits& limits) override {
    const auto attempt = [&] { return try_to_extend(id, ttl, limits); };
    co_return co_await until_no_race_is_lost<ExtendReply>(attempt, limits);
  }

  // The request's Commit may still be under way. It depends on the counter as it was then: once that has advanced, the
  // Commit can no longer succeed, and what is there is all that will ever be there.
  asio::awaitable<void> retract(const AcquireRequest& request, const CallLimits& limits) override {
    const auto attempt = [&] { return try_to_retract(request, limits); };
    co_await until_no_race_is_lost<bool>(attempt, limits);
  }

  asio::awaitable<bool> is_locked(const Key& key, const CallLimits& limits) override {
    const auto document = co_await read_lock(key, limits);
    if (!document) co_return false;
    const auto lock = firestore::record_of(*document);
    const auto now = database_->now();
    if (cleanup_in_is_locked_ && core::is_removable(lock.expires_at, now) &&
        cleanup_pace_.may_clean_up(std::chrono::steady_clock::now())) {
      const auto executor = co_await asio::this_coro::executor;
      auto clean_up = remove_in_background(database_, log_, *document, steady_clock::now() + operation_timeout_);
      async::spawn(executor, std::move(clean_up));
    }
    co_return core::is_live(lock.expires_at, now);
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const Key& key, const CallLimits& limits) override {
    const auto document = co_await read_lock(key, limits);
    if (!document) co_return std::nullopt;
    auto lock = firestore::record_of(*document);
    if (!core::is_live(lock.expires_at, database_->now())) co_return std::nullopt;
    co_return lock;
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const LockId& id, const CallLimits& limits) override {
    const auto found = co_await find(id, limits);
    co_return found.lock;
  }

  asio::awaitable<std::unique_ptr<WaitTicket>> join(const Key& key, const LockId& waiter, std::function<void()> wake,
                                                    const CallLimits& limits) override {
    auto ticket = std::make_unique<FirestoreTicket>(listener_, names_.of(key).lock, waiter, std::move(wake));
    co_await ticket->rejoin(limits);
    co_return ticket;
  }

  asio::awaitable<std::vector<Finding>> diagnose(const CallLimits& limits) override {
    co_return co_await firestore::diagnose(*database_, *listener_, is_emulator_, limits);
  }
  asio::awaitable<std::string> setup(const CallLimits& /*limits*/) override {
    co_return "Firestore needs no set-up: it makes collections, and the index of lockId, by itself. Do not exempt lockId "
              "from indexing";
  }

  asio::awaitable<void> close(const CallLimits& limits) override {
    co_await listener_->close(limits);
    co_await channel_->close(limits);
  }

 private:
  // -------------------------------------------------------------------------------------------------------------------
  // Single attempts. Each reads, then commits; nothing means that somebody else changed what was read in between.

  asio::awaitable<std::optional<AcquireReply>> try_to_acquire(const AcquireRequest& request, const CallLimits& limits) {
    const auto names = names_.of(request.key);
    const auto begun = steady_clock::now();
    if (request.can_wait) {
      const auto wait = courtesy_.left_to_others(names.lock, begun);
      if (wait > wait.zero()) co_return Contended{wait};
    }
    const auto read = co_await read_lock_and_counter(names, limits);
    database_->expect_good_clock(Database::Purpose::grant);
    if (read.is_held()) {
      const auto& lock = *read.lock;
      if (lock.lock_id == request.lock_id) {
        co_return Granted{lock.fence, lock.expires_at, lock.expires_at - read.now};
      }
      courtesy_.met(names.lock, lock.lock_id);
      co_return Contended{std::min(look_again_in(names.lock), core::free_in(lock.expires_at, read.now))};
    }
    const auto fence = core::next_fence(read.newest_fence.value());
    const LockRecord lock{.key = request.key,
                          .lock_id = request.lock_id,
                          .expires_at = read.now + request.ttl,
                          .acquired_at = read.now,
                          .fence = fence};
    std::vector<Write> writes;
    writes.push_back(firestore::put(firestore::lock_document(names.lock, lock), read.lock_document));
    writes.push_back(
        firestore::put(firestore::counter_document(names.counter, fence, request.key), read.counter_document));
    if (!co_await database_->commit(std::move(writes), limits)) co_return std::nullopt;
    courtesy_.granted(names.lock, request.lock_id, steady_clock::now() - begun);
    co_return Granted{fence, lock.expires_at, request.ttl};
  }

  // Who was just told that the lock is gone, and finds it taken again, most likely by the one who gave it back, tries a
  // few times before it waits for the next time: order is not kept here, but nobody shall starve.
  milliseconds look_again_in(const std::string& document) {
    switch (listener_->last_told(document)) {
      case Listener::Told::gone_just:
        return core::random_between(milliseconds(2), milliseconds(8));
      case Listener::Told::gone:
        return core::random_between(milliseconds(10), milliseconds(50));
      case Listener::Told::nothing:
        break;
    }
    return milliseconds::max();
  }

  asio::awaitable<std::optional<bool>> try_to_retract(const AcquireRequest& request, const CallLimits& limits) {
    const auto names = names_.of(request.key);
    const auto read = co_await read_lock_and_counter(names, limits);
    std::vector<Write> writes;
    if (read.lock && read.lock->lock_id == request.lock_id) {
      writes.push_back(firestore::remove(*read.lock_document));
    } else if (read.is_held() || read.newest_fence.value() >= Fence::refuse_above) {
      // The request found the key free, so that these documents have changed since; or it was never sent.
      co_return true;
    } else {
      // A counter that is not there yet is made, which has the same effect: the Commit depends on its absence.
      const Fence advanced(read.newest_fence.value() + (read.counter_document ? 1 : 0));
      writes.push_back(
          firestore::put(firestore::counter_document(names.counter, advanced, request.key), read.counter_document));
    }
    if (!co_await database_->commit(std::move(writes), limits)) co_return std::nullopt;
    co_return true;
  }

  asio::awaitable<std::optional<ReleaseReply>> try_to_release(const LockId& id, const CallLimits& limits) {
    auto found = co_await find(id, limits);
    if (!found.lock) co_return found.missing;
    found.clean_up.push_back(firestore::remove(found.document));
    if (!co_await database_->commit(std::move(found.clean_up), limits)) co_return std::nullopt;
    courtesy_.released(found.document.name(), id, steady_clock::now());
    co_return Released{};
  }

  asio::awaitable<std::optional<ExtendReply>> try_to_extend(const LockId& id, milliseconds ttl,
                                                            const CallLimits& limits) {
    auto found = co_await find(id, limits);
    database_->expect_good_clock(Database::Purpose::extend);
    if (!found.lock) co_return found.missing;
    const auto expires_at = found.now + ttl;
    found.clean_up.push_back(firestore::change_expiry(found.document, expires_at));
    if (!co_await database_->commit(std::move(found.clean_up), limits)) co_return std::nullopt;
    co_return Extended{expires_at, ttl};
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Reading

  asio::awaitable<std::optional<Document>> read_lock(const Key& key, const CallLimits& limits) {
    std::vector<std::string> wanted = {names_.of(key).lock};
    auto documents = co_await database_->read(std::move(wanted), limits);
    co_return std::move(documents[0]);
  }

  asio::awaitable<LockAndCounter> read_lock_and_counter(const Names::OfKey& names, const CallLimits& limits) {
    std::vector<std::string> wanted = {names.lock, names.counter};
    auto documents = co_await database_->read(std::move(wanted), limits);
    LockAndCounter read;
    read.now = database_->now();
    if (documents[0]) read.lock = firestore::record_of(*documents[0]);
    if (documents[1]) read.newest_fence = firestore::counter_of(*documents[1]);
    if (read.lock) read.newest_fence = std::max(read.newest_fence, read.lock->fence);
    read.lock_document = std::move(documents[0]);
    read.counter_document = std::move(documents[1]);
    co_return read;
  }

  // The one live lock that has an id.
  struct Found {
    std::optional<LockRecord> lock;
    Document document;
    Missing missing = Missing::not_found;
    // Of dead documents that have the same id.
    std::vector<Write> clean_up;
    Timestamp now;
  };

  // Of several documents with one id, those that are no locks do not keep us from the one that is.
  static std::optional<LockRecord> lock_or_nothing(const Document& document) {
    try {
      return firestore::record_of(document);
    } catch (const LockError&) {
      return std::nullopt;
    }
  }

  asio::awaitable<Found> find(const LockId& id, const CallLimits& limits) {
    auto documents = co_await database_->find(id, limits);
    Found found;
    found.now = database_->now();
    if (documents.size() > 1) {
      log_.warn("duplicate-lock-id",
                "several documents of the lock collection have the same lockId: something else writes there");
    }
    std::size_t live = 0;
    for (auto& document : documents) {
      auto lock = documents.size() == 1 ? std::optional(firestore::record_of(document)) : lock_or_nothing(document);
      // Whatever the query says.
      if (!lock || lock->lock_id != id) continue;
      if (core::is_live(lock->expires_at, found.now)) {
        ++live;
        found.lock = std::move(lock);
        found.document = std::move(document);
      } else {
        found.missing = Missing::expired;
        if (core::is_removable(lock->expires_at, found.now)) found.clean_up.push_back(firestore::remove(document));
      }
    }
    if (live > 1) {
      // Nobody can tell which of them is meant.
      found.lock.reset();
      found.missing = Missing::not_found;
    }
    co_return found;
  }

  static asio::awaitable<void> remove_in_background(std::shared_ptr<Database> database, Log log, Document document,
                                                    steady_clock::time_point deadline) {
    try {
      std::vector<Write> writes = {firestore::remove(document)};
      const CallLimits limits{{}, deadline};
      co_await database->commit(std::move(writes), limits);
    } catch (const std::exception& error) {
      log.debug(std::string("in the background: ") + error.what());
    }
  }

  const milliseconds operation_timeout_;
  const bool cleanup_in_is_locked_;
  const bool is_emulator_;
  const Log log_;
  const Names names_;
  core::CleanupPace cleanup_pace_;
  firestore::Courtesy courtesy_;
  std::shared_ptr<Channel> channel_;
  std::shared_ptr<Database> database_;
  std::shared_ptr<Listener> listener_;
};

std::string environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing of ours changes the environment
  return value != nullptr ? value : "";
}

[[noreturn]] void refuse(const std::string& message) { throw LockError(ErrorCode::invalid_argument, message); }

// Part of a resource's name, so nothing that could end that part.
void check_name(const std::string& name, const std::string& what) {
  const bool legal = !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
    return c > ' ' && c < 0x7f && c != '/' && c != '?' && c != '#' && c != '%';
  });
  if (!legal) refuse(what + " consists of letters, digits, and such as '-', '.', ':' or '(default)'");
}

}  // namespace

std::unique_ptr<Backend> make_firestore_backend(FirestoreOptions options, Log log) {
  if (options.project.empty()) options.project = environment("GOOGLE_CLOUD_PROJECT");
  if (options.emulator.empty()) options.emulator = environment("FIRESTORE_EMULATOR_HOST");
  if (options.project.empty()) {
    refuse("which project of Google Cloud? firestore://PROJECT, or the environment's GOOGLE_CLOUD_PROJECT");
  }
  check_name(options.project, "the name of a project");
  check_name(options.database, "the name of a database");
  if (options.operation_timeout <= options.operation_timeout.zero()) refuse("operation_timeout must be positive");
  options.operation_timeout = core::bounded(options.operation_timeout);
  const bool emulated = !options.emulator.empty();
  if (!emulated && options.endpoint.empty()) refuse("endpoint is empty: leave it out for Firestore itself");
  Endpoint endpoint{.address = emulated ? options.emulator : options.endpoint,
                    .is_emulator = emulated,
                    .project = options.project,
                    .database = options.database};
  return std::make_unique<FirestoreBackend>(options, std::move(endpoint), std::move(log));
}

}  // namespace syncguard
