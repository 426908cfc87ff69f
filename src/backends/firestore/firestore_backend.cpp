#include "async/spawn.hpp"
#include "backends/firestore/backoff_after_release.hpp"
#include "backends/firestore/credentials.hpp"
#include "backends/firestore/diagnosis.hpp"
#include "backends/firestore/session.hpp"
#include "backends/firestore/wake_listener.hpp"
#include "core/durations.hpp"
#include "core/expiry.hpp"
#include "core/fence_limit.hpp"
#include "core/key_rules.hpp"
#include "core/listed.hpp"
#include "core/validation.hpp"

#include <syncguard/liveness.hpp>

#include <asio/this_coro.hpp>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

namespace syncguard {
inline namespace v0_1 {
namespace {

using firestore::Connection;
using firestore::Endpoint;
using firestore::HostTime;
using firestore::Names;
using firestore::Session;
using firestore::WakeListener;
using firestore::wire::Document;
using firestore::wire::Write;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How often an operation is repeated after a conflict, and the maximum delay before the first repetition.
constexpr int max_retries = 5;
constexpr std::chrono::microseconds retry_delay{10'000};

// How often an operation reads its documents until the replies show that this host's clock is reliable.
constexpr int max_clock_checks = 3;

constexpr milliseconds default_operation_timeout{5000};
constexpr milliseconds default_connect_timeout{10'000};

// Randomized, so that clients that collided once do not collide again.
asio::awaitable<void> pause_before_retry(int retry, CallLimits limits) {
  const auto pause = core::random_between(std::chrono::microseconds::zero(), retry_delay * (1 << retry));
  (void)co_await async::sleep_until(std::min(limits.deadline, steady_clock::now() + pause), limits.stop);
}

// Calls attempt until it returns a value. nullopt means that another client changed the documents in between.
template <typename Result, typename Attempt>
asio::awaitable<Result> retry_on_conflict(Attempt attempt, CallLimits limits) {
  for (int retry = 0;; ++retry) {
    std::optional<Result> result = co_await attempt();
    if (result) co_return std::move(*result);
    if (retry == max_retries) {
      throw LockError(ErrorCode::service_unavailable,
                      "other clients kept changing the lock's documents at the same time");
    }
    co_await pause_before_retry(retry, limits);
  }
}

// Calls read until its result has a reliable time. One slow reply proves little about the clock, but another one may
// prove enough. Throws LockError(service_unavailable).
template <typename Result, typename Read>
asio::awaitable<Result> with_reliable_clock(Read read) {
  for (int check = 1;; ++check) {
    auto result = co_await read();
    if (result.time.is_reliable()) co_return result;
    if (check == max_clock_checks || result.time.is_wrong()) throw firestore::unreliable_clock(result.time);
  }
}

// The documents that are read before a lock is granted.
struct LockAndCounter {
  std::optional<Document> lock_document;
  std::optional<Document> counter_document;
  std::optional<LockRecord> lock;
  // The newest fence: the counter's, or the lock's if the counter was tampered with.
  Fence newest_fence;
  // This host's time after the read.
  HostTime time;

  [[nodiscard]] bool is_held() const { return lock && is_live(lock->expires_at, time.now); }
  // Refers to this object.
  [[nodiscard]] core::KeyView view() const {
    return {.now = time.now, .holder = lock ? &*lock : nullptr, .counter = newest_fence.value()};
  }
};

class FirestoreTicket : public WaitTicket {
 public:
  FirestoreTicket(std::shared_ptr<WakeListener> wake_listener, std::string document, const LockId& waiter,
                  std::function<void()> wake)
      : wake_listener_(std::move(wake_listener)),
        document_(std::move(document)),
        waiter_(waiter),
        wake_(std::move(wake)) {}
  ~FirestoreTicket() override { wake_listener_->remove(document_, waiter_); }

  asio::awaitable<void> rejoin(const CallLimits& limits) override {
    co_await wake_listener_->add(document_, waiter_, wake_, limits);
  }
  asio::awaitable<void> leave(const CallLimits& /*limits*/) override {
    wake_listener_->remove(document_, waiter_);
    co_return;
  }

 private:
  const std::shared_ptr<WakeListener> wake_listener_;
  const std::string document_;
  const LockId waiter_;
  const std::function<void()> wake_;
};

class FirestoreBackend : public Backend {
 public:
  FirestoreBackend(const FirestoreOptions& options, Endpoint endpoint, Log log)
      : operation_timeout_(options.operation_timeout.value_or(default_operation_timeout)),
        fences_(options.fences),
        cleanup_in_is_locked_(options.cleanup_in_is_locked),
        is_emulator_(endpoint.is_emulator),
        log_(log),
        names_(endpoint.database_name(), options.collection, options.fence_collection) {
    const auto first_connection = options.operation_timeout ? milliseconds::zero() : default_connect_timeout;
    connection_ = std::make_shared<Connection>(std::move(endpoint), options.connect_timeout.value_or(first_connection));
    session_ = std::make_shared<Session>(connection_, names_, options, std::move(log));
    wake_listener_ = std::make_shared<WakeListener>(connection_);
  }

  [[nodiscard]] Capabilities capabilities() const override {
    return {.name = "firestore",
            .fences = fences_,
            .time_authority = TimeAuthority::client,
            .operation_timeout = operation_timeout_};
  }
  [[nodiscard]] std::optional<milliseconds> clock_skew() const noexcept override {
    const auto skew = session_->host_time().skew;
    if (!skew) return std::nullopt;
    return skew->certain();
  }
  [[nodiscard]] std::size_t connections() const noexcept override { return connection_->is_connected() ? 1 : 0; }

  asio::awaitable<AcquireReply> acquire(const AcquireRequest& request, const CallLimits& given) override {
    const auto limits = connection_->with_time_to_connect(given);
    const auto attempt = [&] { return try_to_acquire(request, limits); };
    co_return co_await retry_on_conflict<AcquireReply>(attempt, limits);
  }
  asio::awaitable<ReleaseReply> release(const LockId& id, const CallLimits& given) override {
    const auto limits = connection_->with_time_to_connect(given);
    const auto attempt = [&] { return try_to_release(id, limits); };
    co_return co_await retry_on_conflict<ReleaseReply>(attempt, limits);
  }
  asio::awaitable<ExtendReply> extend(const LockId& id, milliseconds ttl, const CallLimits& given) override {
    const auto limits = connection_->with_time_to_connect(given);
    const auto attempt = [&] { return try_to_extend(id, ttl, limits); };
    co_return co_await retry_on_conflict<ExtendReply>(attempt, limits);
  }

  // The request's Commit may still be pending. It has a precondition on the counter: once the counter has advanced, the
  // Commit can no longer succeed, and the documents found now are final.
  asio::awaitable<void> retract(const AcquireRequest& request, const CallLimits& limits) override {
    const auto attempt = [&] { return try_to_retract(request, limits); };
    co_await retry_on_conflict<bool>(attempt, limits);
  }

  asio::awaitable<bool> is_locked(const Key& key, const CallLimits& given) override {
    const auto limits = connection_->with_time_to_connect(given);
    const auto document = co_await read_lock(key, limits);
    if (!document) co_return false;
    const auto lock = firestore::record_of(*document);
    const auto now = session_->now();
    if (cleanup_in_is_locked_ && is_removable(lock.expires_at, now) &&
        cleanup_pace_.may_clean_up(std::chrono::steady_clock::now())) {
      const auto executor = co_await asio::this_coro::executor;
      auto clean_up = remove_if_long_dead(session_, log_, document->name(), steady_clock::now() + operation_timeout_);
      async::spawn(executor, std::move(clean_up));
    }
    co_return is_live(lock.expires_at, now);
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const Key& key, const CallLimits& given) override {
    const auto limits = connection_->with_time_to_connect(given);
    const auto document = co_await read_lock(key, limits);
    if (!document) co_return std::nullopt;
    auto lock = firestore::record_of(*document);
    if (!is_live(lock.expires_at, session_->now())) co_return std::nullopt;
    co_return lock;
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const LockId& id, const CallLimits& given) override {
    const auto limits = connection_->with_time_to_connect(given);
    auto found = co_await find(id, limits);
    if (found.lock && !is_live(found.lock->expires_at, found.time.now)) found.lock.reset();
    co_return found.lock;
  }

  asio::awaitable<std::unique_ptr<WaitTicket>> join(const AcquireRequest& request, std::function<void()> wake,
                                                    const CallLimits& limits) override {
    auto ticket = std::make_unique<FirestoreTicket>(wake_listener_, names_.of(request.key).lock, request.lock_id,
                                                    std::move(wake));
    co_await ticket->rejoin(limits);
    co_return ticket;
  }

  asio::awaitable<std::vector<Finding>> diagnose(const CallLimits& given) override {
    const auto limits = connection_->with_time_to_connect(given);
    co_return co_await firestore::diagnose(*session_, *wake_listener_, is_emulator_, fences_, limits);
  }
  asio::awaitable<std::string> setup(const CallLimits& /*limits*/) override {
    co_return "Firestore needs no setup: it creates collections and the index of lockId automatically. Do not exempt "
              "lockId from indexing";
  }

  asio::awaitable<CleanupReply> clean_up(const CleanupRequest& request, const CallLimits& given) override {
    const auto limits = connection_->with_time_to_connect(given);
    if (request.mode == CleanupRequest::Mode::count) {
      const auto before = core::removable_before(session_->now(), request.older_than);
      const auto count = co_await session_->count_expired(before, limits);
      co_return CleanupReply{.count = count};
    }
    const auto attempt = [&] { return try_to_clean_up(request, limits); };
    co_return co_await retry_on_conflict<CleanupReply>(attempt, limits);
  }

  asio::awaitable<LockPage> list(const ListRequest& request, const CallLimits& given) override {
    const auto limits = connection_->with_time_to_connect(given);
    const auto documents = co_await session_->list(request.prefix, request.cursor, request.limit, limits);
    LockPage page;
    page.now = session_->now();
    for (const auto& document : documents) {
      if (!firestore::key_of(document).starts_with(request.prefix)) co_return page;
      // Documents that are not locks are left out.
      const auto lock = lock_or_nothing(document);
      if (lock && is_live(lock->expires_at, page.now)) page.locks.push_back(core::listed(*lock, std::nullopt));
    }
    if (documents.size() >= std::min(request.limit, Session::max_listed)) {
      page.cursor = firestore::key_of(documents.back());
    }
    co_return page;
  }

  asio::awaitable<KeyState> inspect(const Key& key, const CallLimits& given) override {
    const auto limits = connection_->with_time_to_connect(given);
    const auto names = names_.of(key);
    const auto read = co_await read_lock_and_counter(names, limits);
    KeyState state;
    if (read.is_held()) core::set_holder(state, core::listed(*read.lock, std::nullopt));
    state.fence = read.newest_fence;
    state.now = read.time.now;
    co_return state;
  }

  asio::awaitable<bool> break_lock(const Key& key, Fence fence, const CallLimits& given) override {
    const auto limits = connection_->with_time_to_connect(given);
    const auto attempt = [&] { return try_to_break(key, fence, limits); };
    co_return co_await retry_on_conflict<bool>(attempt, limits);
  }

  asio::awaitable<Fence> raise_fence(const Key& key, Fence fence, const CallLimits& given) override {
    const auto limits = connection_->with_time_to_connect(given);
    const auto attempt = [&] { return try_to_raise(key, fence, limits); };
    co_return co_await retry_on_conflict<Fence>(attempt, limits);
  }

  asio::awaitable<void> close(const CallLimits& limits) override {
    co_await wake_listener_->close(limits);
    co_await connection_->close(limits);
  }

 private:
  // -------------------------------------------------------------------------------------------------------------------
  // Single attempts. Each reads, then commits. nullopt means that another client changed the documents in between.

  asio::awaitable<std::optional<AcquireReply>> try_to_acquire(const AcquireRequest& request, const CallLimits& limits) {
    const auto names = names_.of(request.key);
    const auto begun = steady_clock::now();
    if (request.hints.can_wait) {
      const auto wait = backoff_.remaining_backoff(names.lock, begun);
      if (wait > wait.zero()) co_return Contended{wait};
    }
    const auto read_once = [&] { return read_lock_and_counter(names, limits); };
    const auto read = co_await with_reliable_clock<LockAndCounter>(read_once);
    const auto floor = fences_ == FenceSource::clock ? core::clock_floor(read.time.server_now()) : 0;
    auto [reply, changes] = core::acquire(read.view(), request, floor);
    if (auto* contended = std::get_if<Contended>(&reply)) {
      backoff_.observed_holder(names.lock, read.lock->lock_id);
      contended->free_in = std::min(recheck_in(names.lock), contended->free_in);
      co_return reply;
    }
    if (const auto& lock = changes.put_holder) {
      std::vector<Write> writes;
      writes.push_back(firestore::put(firestore::lock_document(names.lock, *lock), read.lock_document));
      writes.push_back(
          firestore::put(firestore::counter_document(names.counter, lock->fence, request.key), read.counter_document));
      if (!co_await session_->commit(std::move(writes), limits)) co_return std::nullopt;
      backoff_.granted(names.lock, request.lock_id, steady_clock::now() - begun);
    }
    auto& granted = std::get<Granted>(reply);
    granted.remaining = std::min(granted.remaining, read.time.remaining_until(granted.expires_at));
    co_return reply;
  }

  // A waiter that was just notified of a deletion but finds the lock taken again, probably by the client that released
  // it, retries a few times before it waits for the next change: order is not kept here, but no waiter may starve.
  milliseconds recheck_in(const std::string& document) {
    switch (wake_listener_->last_notice(document)) {
      case WakeListener::Notice::recently_deleted:
        return core::random_between(milliseconds(2), milliseconds(8));
      case WakeListener::Notice::deleted:
        return core::random_between(milliseconds(10), milliseconds(50));
      case WakeListener::Notice::nothing:
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
      // The pending request can no longer take effect. It found the key free, and the documents have changed since; or
      // it was never sent.
      co_return true;
    } else {
      // A missing counter is created, which has the same effect: the Commit has a precondition on its absence.
      const Fence advanced(read.newest_fence.value() + (read.counter_document ? 1 : 0));
      writes.push_back(
          firestore::put(firestore::counter_document(names.counter, advanced, request.key), read.counter_document));
    }
    if (!co_await session_->commit(std::move(writes), limits)) co_return std::nullopt;
    co_return true;
  }

  asio::awaitable<std::optional<ReleaseReply>> try_to_release(const LockId& id, const CallLimits& limits) {
    auto found = co_await find(id, limits);
    const auto [reply, changes] = core::release(found.view(), id);
    if (!changes.remove_holder) co_return reply;
    found.clean_up.push_back(firestore::remove(found.document));
    if (!co_await session_->commit(std::move(found.clean_up), limits)) co_return std::nullopt;
    backoff_.released(found.document.name(), id, steady_clock::now());
    co_return reply;
  }

  asio::awaitable<std::optional<ExtendReply>> try_to_extend(const LockId& id, milliseconds ttl,
                                                            const CallLimits& limits) {
    const auto find_once = [&] { return find(id, limits); };
    auto found = co_await with_reliable_clock<Found>(find_once);
    auto [reply, changes] = core::extend(found.view(), id, ttl);
    if (!changes.set_expiry) co_return reply;
    found.clean_up.push_back(firestore::change_expiry(found.document, *changes.set_expiry));
    if (!co_await session_->commit(std::move(found.clean_up), limits)) co_return std::nullopt;
    std::get<Extended>(reply).remaining = found.time.remaining_until(*changes.set_expiry);
    co_return reply;
  }

  asio::awaitable<std::optional<CleanupReply>> try_to_clean_up(const CleanupRequest& request,
                                                               const CallLimits& limits) {
    const auto find_once = [&] { return find_expired(request, limits); };
    const auto expired = co_await with_reliable_clock<Expired>(find_once);
    const auto before = core::removable_before(expired.time.now, request.older_than);
    std::vector<Write> writes;
    for (const auto& document : expired.documents) {
      // The query result is not trusted, nor the time before it; documents that are not locks stay.
      const auto lock = lock_or_nothing(document);
      if (lock && lock->expires_at < before) writes.push_back(firestore::remove(document));
    }
    const CleanupReply reply{
        .count = writes.size(),
        .more = !writes.empty() && expired.documents.size() >= std::min(request.limit, Session::max_expired)};
    if (!writes.empty() && !co_await session_->commit(std::move(writes), limits)) co_return std::nullopt;
    co_return reply;
  }

  asio::awaitable<std::optional<bool>> try_to_break(const Key& key, Fence fence, const CallLimits& limits) {
    const auto document = co_await read_lock(key, limits);
    if (!document) co_return false;
    const auto lock = firestore::record_of(*document);
    if (!core::break_lock({.now = session_->now(), .holder = &lock}, fence).reply) co_return false;
    std::vector<Write> writes = {firestore::remove(*document)};
    if (!co_await session_->commit(std::move(writes), limits)) co_return std::nullopt;
    co_return true;
  }

  asio::awaitable<std::optional<Fence>> try_to_raise(const Key& key, Fence fence, const CallLimits& limits) {
    const auto names = names_.of(key);
    const auto read = co_await read_lock_and_counter(names, limits);
    if (read.newest_fence >= fence) co_return read.newest_fence;
    std::vector<Write> writes = {
        firestore::put(firestore::counter_document(names.counter, fence, key), read.counter_document)};
    if (!co_await session_->commit(std::move(writes), limits)) co_return std::nullopt;
    co_return fence;
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Reading

  asio::awaitable<std::optional<Document>> read_lock(const Key& key, const CallLimits& limits) {
    std::vector<std::string> wanted = {names_.of(key).lock};
    auto documents = co_await session_->read(std::move(wanted), limits);
    co_return std::move(documents[0]);
  }

  asio::awaitable<LockAndCounter> read_lock_and_counter(const Names::OfKey& names, const CallLimits& limits) {
    std::vector<std::string> wanted = {names.lock, names.counter};
    auto documents = co_await session_->read(std::move(wanted), limits);
    LockAndCounter read;
    read.time = session_->host_time();
    if (documents[0]) read.lock = firestore::record_of(*documents[0]);
    if (documents[1]) read.newest_fence = firestore::counter_of(*documents[1]);
    if (read.lock) read.newest_fence = std::max(read.newest_fence, read.lock->fence);
    read.lock_document = std::move(documents[0]);
    read.counter_document = std::move(documents[1]);
    co_return read;
  }

  // The only live lock with a given id, or one that has expired.
  struct Found {
    std::optional<LockRecord> lock;
    Document document;
    // Removes dead documents with the same id.
    std::vector<Write> clean_up;
    // This host's time after the query.
    HostTime time;

    // Refers to this object.
    [[nodiscard]] core::KeyView view() const { return {.now = time.now, .holder = lock ? &*lock : nullptr}; }
  };

  // If several documents have the same id, those that are not locks must not hide the one that is.
  static std::optional<LockRecord> lock_or_nothing(const Document& document) {
    try {
      return firestore::record_of(document);
    } catch (const LockError&) {
      return std::nullopt;
    }
  }

  asio::awaitable<Found> find(const LockId& id, const CallLimits& limits) {
    auto documents = co_await session_->find(id, limits);
    Found found;
    found.time = session_->host_time();
    if (documents.size() > 1) {
      log_.warn("duplicate-lock-id",
                "several documents of the lock collection have the same lockId: another program writes there");
    }
    std::size_t live = 0;
    for (auto& document : documents) {
      auto lock = documents.size() == 1 ? std::optional(firestore::record_of(document)) : lock_or_nothing(document);
      // The query result is not trusted.
      if (!lock || lock->lock_id != id) continue;
      if (is_live(lock->expires_at, found.time.now)) {
        ++live;
        found.lock = std::move(lock);
        found.document = std::move(document);
      } else {
        if (found.time.is_reliable() && is_removable(lock->expires_at, found.time.now)) {
          found.clean_up.push_back(firestore::remove(document));
        }
        if (live == 0) found.lock = std::move(lock);
      }
    }
    if (live > 1) {
      // It is unknown which of them is meant.
      found.lock.reset();
    }
    co_return found;
  }

  // Documents that had expired by this host's clock before the query, and the time after it.
  struct Expired {
    std::vector<Document> documents;
    HostTime time;
  };

  asio::awaitable<Expired> find_expired(const CleanupRequest& request, const CallLimits& limits) {
    const auto before = core::removable_before(session_->now(), request.older_than);
    Expired expired;
    expired.documents = co_await session_->find_expired(before, request.limit, limits);
    expired.time = session_->host_time();
    co_return expired;
  }

  // A document and this host's time after it was read.
  struct ReadDocument {
    std::optional<Document> document;
    HostTime time;
  };

  static asio::awaitable<ReadDocument> read_document(Session& session, const std::string& name, CallLimits limits) {
    std::vector<std::string> wanted = {name};
    auto documents = co_await session.read(std::move(wanted), limits);
    co_return ReadDocument{.document = std::move(documents[0]), .time = session.host_time()};
  }

  // Runs in the background. It reads the lock again, so that it can wait until the clock is known to be reliable.
  static asio::awaitable<void> remove_if_long_dead(std::shared_ptr<Session> session, Log log, std::string name,
                                                   steady_clock::time_point deadline) {
    try {
      const CallLimits limits{{}, deadline};
      const auto read_once = [&] { return read_document(*session, name, limits); };
      const auto read = co_await with_reliable_clock<ReadDocument>(read_once);
      if (!read.document || !is_removable(firestore::record_of(*read.document).expires_at, read.time.now)) co_return;
      std::vector<Write> writes = {firestore::remove(*read.document)};
      co_await session->commit(std::move(writes), limits);
    } catch (const std::exception& error) {
      log.debug(std::string("a background request failed: ") + error.what());
    }
  }

  const milliseconds operation_timeout_;
  const FenceSource fences_;
  const bool cleanup_in_is_locked_;
  const bool is_emulator_;
  const Log log_;
  const Names names_;
  core::CleanupPace cleanup_pace_;
  firestore::BackoffAfterRelease backoff_;
  std::shared_ptr<Connection> connection_;
  std::shared_ptr<Session> session_;
  std::shared_ptr<WakeListener> wake_listener_;
};

std::string environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): this library does not change the environment
  return value != nullptr ? value : "";
}

using core::refuse;

// The name becomes a segment of a resource name, so it must not contain a character that ends the segment.
void check_name(const std::string& name, const std::string& what) {
  const bool legal = !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
    return c > ' ' && c < 0x7f && c != '/' && c != '?' && c != '#' && c != '%';
  });
  if (!legal)
    refuse(what + " must consist of letters, digits and characters such as '-', '.' and ':', or be '(default)'");
}

// The host of the endpoint receives an access token, which is valid for more than locks.
void check_endpoint(const FirestoreOptions& options) {
  if (!firestore::host_of(options.endpoint)) refuse("endpoint must be HOST or HOST:PORT; omit it for Firestore itself");
  if (firestore::may_receive_tokens(options.endpoint, options.allow_endpoint)) return;
  refuse(
      "endpoint is not a host of googleapis.com and would receive a Google Cloud access token: if that is intended, "
      "repeat it as allow_endpoint");
}

}  // namespace

std::unique_ptr<Backend> make_firestore_backend(FirestoreOptions options, Log log) {
  if (options.project.empty()) options.project = environment("GOOGLE_CLOUD_PROJECT");
  const bool emulator_is_chosen = !options.emulator.empty();
  if (!emulator_is_chosen) options.emulator = environment("FIRESTORE_EMULATOR_HOST");
  if (options.project.empty()) {
    refuse("no Google Cloud project: use firestore://PROJECT, or set GOOGLE_CLOUD_PROJECT");
  }
  check_name(options.project, "the name of a project");
  check_name(options.database, "the name of a database");
  if (options.operation_timeout) {
    if (*options.operation_timeout <= milliseconds::zero()) refuse("operation_timeout must be positive");
    options.operation_timeout = core::bounded(*options.operation_timeout);
  }
  if (options.connect_timeout) {
    if (*options.connect_timeout < milliseconds::zero()) refuse("connect_timeout must not be negative");
    options.connect_timeout = core::bounded(*options.connect_timeout);
  }
  const bool emulated = !options.emulator.empty();
  if (emulated && options.endpoint != FirestoreOptions().endpoint) {
    refuse(emulator_is_chosen ? "emulator and endpoint cannot be combined"
                              : "FIRESTORE_EMULATOR_HOST is set, and so is endpoint: unset one of them");
  }
  if (!emulated) check_endpoint(options);
  if (emulated && !emulator_is_chosen) {
    log.warn(
        "firestore-emulator",
        "FIRESTORE_EMULATOR_HOST is set: locks are kept in an emulator, over plain text and without credentials, and "
        "do not exclude clients of Firestore itself. Unset it unless this is a test");
  }
  Endpoint endpoint{.address = emulated ? options.emulator : options.endpoint,
                    .is_emulator = emulated,
                    .project = options.project,
                    .database = options.database,
                    .credentials = options.credentials,
                    .allow_endpoint = options.allow_endpoint};
  return std::make_unique<FirestoreBackend>(options, std::move(endpoint), std::move(log));
}

}  // namespace v0_1
}  // namespace syncguard
