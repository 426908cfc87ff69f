#include "locks/client.hpp"

#include "core/durations.hpp"
#include "core/validation.hpp"
#include "locks/lease_state.hpp"
#include "locks/log_delivery.hpp"

#include <syncguard/forwarding_backend.hpp>
#include <syncguard/liveness.hpp>

#include <asio/post.hpp>
#include <asio/system_executor.hpp>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace syncguard {
inline namespace v0_1 {
namespace detail {
namespace {

using std::chrono::steady_clock;

// How many leases are released at a time when a client is closed.
constexpr std::size_t closing_width = 64;

// Extra time beyond dispose_timeout for work that should already have ended.
constexpr std::chrono::milliseconds grace{500};

// How many callbacks of the application may be queued, not counting those of lost().
constexpr std::size_t callback_queue = 4096;

std::chrono::milliseconds checked_timeout(const ClientOptions& options, const Backend& backend) {
  const auto timeout = options.operation_timeout.value_or(backend.capabilities().operation_timeout);
  if (timeout <= std::chrono::milliseconds(0)) {
    throw LockError(ErrorCode::invalid_argument, "operation_timeout must be positive");
  }
  if (options.dispose_timeout < std::chrono::milliseconds(0)) {
    throw LockError(ErrorCode::invalid_argument, "dispose_timeout must not be negative");
  }
  return core::bounded(timeout);
}

std::string holder_of(const ClientOptions& options) {
  if (!options.holder) {
    std::string process = "/";
    process += std::to_string(getpid());
    // The system accepts any bytes as its name.
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    const auto label = host + process;
    return core::is_holder(label) ? label : process;
  }
  core::validate_holder(*options.holder);
  return *options.holder;
}

ClientOptions bounded(ClientOptions options) {
  options.dispose_timeout = core::bounded(options.dispose_timeout);
  return options;
}

}  // namespace

Client::Client(std::unique_ptr<Backend> backend, ClientOptions options, std::optional<asio::any_io_executor> executor)
    : io_thread_(executor ? std::optional<async::IoThread>() : std::optional<async::IoThread>(std::in_place)),
      executor_(executor ? *executor : io_thread_->executor()),
      coroutine_executor_(async::InlineExecutor(executor_)),
      options_(bounded(std::move(options))),
      holder_(holder_of(options_)),
      backend_(std::move(backend)),
      lease_observer_(lease_observer_of(*backend_)),
      counters_(options_.metrics ? MetricsAccess::counters(*options_.metrics, backend_->capabilities().name) : nullptr),
      operation_timeout_(checked_timeout(options_, *backend_)),
      scheduler_(io_thread_ ? std::nullopt : std::optional(executor_)),
      lost_threads_("syncguard-lost", async::CallbackThreads::Growth::while_blocked,
                    [log = options_.log] {
                      log.warn("lost-threads",
                               "a callback of lost() blocks, and the system cannot start another thread: other leases "
                               "may learn of their loss late. Callbacks of lost() must not block for long");
                    }),
      callback_thread_("syncguard-note", async::CallbackThreads::Growth::none) {
  backend_->on_locks_gone(scheduler_.locks_are_gone());
}

Client::~Client() = default;

// ---------------------------------------------------------------------------------------------------------------------
// Operations

Client::Operation::Operation(Client& client, Purpose purpose) : client_(client), purpose_(purpose) {
  client.refuse_in_child();
  const std::lock_guard lock(client.mutex_);
  if (client.lifecycle_ == Lifecycle::closed || (client.lifecycle_ == Lifecycle::closing && purpose == Purpose::work)) {
    throw LockError(ErrorCode::aborted, "the client was closed");
  }
  ++client.running(purpose);
}

Client::Operation::~Operation() {
  const std::lock_guard lock(client_.mutex_);
  if (--client_.running(purpose_) == 0 && client_.last_operation_ended_) client_.last_operation_ended_->set();
}

CallLimits Client::disposal_limits(std::thread::id blocking_thread) const {
  return {disposal_stop_.get_token(), steady_clock::now() + operation_timeout_, blocking_thread};
}

std::optional<steady_clock::time_point> Client::disposal_deadline() const {
  if (releases_in_background() || options_.dispose_timeout == std::chrono::milliseconds(0)) return std::nullopt;
  return steady_clock::now() + options_.dispose_timeout;
}

double Client::random(const Callbacks& callbacks) const {
  if (callbacks.random) {
    try {
      const double fraction = callbacks.random();
      if (!std::isnan(fraction)) return std::clamp(fraction, 0.0, 1.0);
    } catch (...) {  // NOLINT(bugprone-empty-catch): by contract; the fallback is below
    }
  }
  return core::random_fraction();
}

void Client::notify_lost(std::shared_ptr<async::CallbackThreads::Callback> loss) noexcept {
  lost_threads_.post(std::move(loss));
}

void Client::notify(std::function<void()> callback) noexcept {
  try {
    if (callback_thread_.post(std::move(callback), callback_queue) == async::CallbackThreads::Posted::queued) return;
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): dropped with the same warning
  }
  log().warn("callbacks",
             "a callback was dropped: too many are queued behind one that does not return, or the system has no thread "
             "or memory for it; on_extended and on_release_error must not block for long");
}

asio::any_io_executor Client::completion_executor() const {
  return io_thread_ && is_forked() ? async::executor_in_child() : executor_;
}

bool Client::must_not_block() const noexcept { return !io_thread_ || io_thread_->is_this_thread(); }

void Client::refuse_blocking(std::string_view async_name) const {
  refuse_in_child();
  if (!must_not_block()) return;
  throw LockError(ErrorCode::invalid_argument,
                  std::string(io_thread_ ? "a blocking call on the client's own I/O thread would deadlock"
                                         : "a client on the caller's executor does not support blocking calls") +
                      ": use " + std::string(async_name));
}

// ---------------------------------------------------------------------------------------------------------------------
// Cleanup in the background

namespace {

void debug(const Client& client, std::string_view what, const LockError& error) noexcept {
  try {
    client.log().debug(std::string(what) + error.what());
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): only for debugging
  }
}

asio::awaitable<void> retract(std::shared_ptr<Client> client, AcquireRequest request) {
  // By then the lock has expired, even if it was granted.
  const auto bound =
      steady_clock::now() + std::min<std::chrono::milliseconds>(request.ttl, std::chrono::hours(24)) + tolerance;
  const InDoubtAcquires::Entry entry(client->in_doubt_acquires(), bound);
  if (entry.dropped_so_far() != 0) {
    client->log().warn("in-doubt",
                       "more than " + std::to_string(InDoubtAcquires::default_capacity) +
                           " acquires are in doubt: those that expire soonest are no longer retracted, " +
                           std::to_string(entry.dropped_so_far()) +
                           " so far, and may stay locked until their ttl ends; check that the store responds");
  }
  try {
    const Client::Operation operation(*client, Client::Operation::Purpose::cleanup);
    const async::EitherStop stop{entry.dropped(), client->disposal_limits().stop};
    for (int retry = 1;; ++retry) {
      CallLimits limits = client->disposal_limits();
      limits.stop = stop.token();
      try {
        co_await client->checked(client->backend().retract(request, limits), request.key.str(), request.lock_id.view());
        co_return;
      } catch (const LockError& error) {
        if (!error.retryable()) throw;
      }
      const auto now = steady_clock::now();
      if (now >= bound) co_return;
      const auto delay = core::retry_delay(WaitOptions{}, retry, client->random({}));
      // Closing waits for this coroutine within its limits. It ends when the entry is dropped.
      const auto result = co_await async::sleep_until(std::min(now + delay, bound), limits.stop);
      if (result == async::WaitResult::stopped) co_return;
    }
  } catch (const LockError& error) {
    debug(*client, "an acquire in doubt could not be retracted; its lock expires after its ttl: ", error);
  }
}

void warn_not_retracted(const Client& client) noexcept {
  client.log().warn("retract",
                    "out of memory: an acquire in doubt was not retracted, and its lock may stay held until "
                    "its ttl ends");
}

// The same, for a coroutine that must not throw.
asio::awaitable<void> retract_without_throwing(std::shared_ptr<Client> client, asio::awaitable<void> retraction) {
  try {
    co_await std::move(retraction);
  } catch (const std::bad_alloc&) {
    warn_not_retracted(*client);
  }
}

// One attempt, for an acquire that the backend granted although it was asked to stop. The client is closing or closed,
// and does not wait for this.
asio::awaitable<void> retract_late(std::shared_ptr<Client> client, AcquireRequest request) {
  const CallLimits limits{{}, steady_clock::now() + client->operation_timeout()};
  try {
    co_await client->checked(client->backend().retract(request, limits), request.key.str(), request.lock_id.view());
  } catch (const LockError& error) {
    debug(*client,
          "a lock that was granted while the client was closing could not be released; it expires after its ttl: ",
          error);
  }
}

// One object, because compilers destroy the parameters of a coroutine in different orders, and a ticket must not
// outlive its client.
struct PlaceToLeave {
  std::shared_ptr<Client> client;
  std::unique_ptr<WaitTicket> ticket;
};

asio::awaitable<void> leave(PlaceToLeave place) {
  try {
    const Client::Operation operation(*place.client, Client::Operation::Purpose::cleanup);
    const CallLimits limits = place.client->disposal_limits();
    co_await place.client->checked(place.ticket->leave(limits), {}, {});
  } catch (const LockError& error) {
    debug(*place.client, "leaving a queue failed; other clients will skip the entry: ", error);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): other clients will skip the entry
  }
}

}  // namespace

void Client::retract_in_background(const AcquireRequest& request) noexcept {
  if (is_forked()) return;
  try {
    auto repeated = request;
    repeated.hints.id_is_new = false;
    const auto self = shared_from_this();
    auto retraction =
        disposal_stop_.stop_requested() ? retract_late(self, std::move(repeated)) : retract(self, std::move(repeated));
    async::spawn(executor_, retract_without_throwing(self, std::move(retraction)));
  } catch (const std::bad_alloc&) {
    warn_not_retracted(*this);
  }
}

void Client::leave_in_background(std::unique_ptr<WaitTicket> ticket) noexcept {
  if (is_forked()) return;
  try {
    async::spawn(executor_, leave({.client = shared_from_this(), .ticket = std::move(ticket)}));
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): other clients will skip the entry
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Closing

asio::awaitable<void> Client::operations_ended(Operation::Purpose purpose, steady_clock::time_point until) {
  for (;;) {
    const async::Event ended;
    {
      const std::lock_guard lock(mutex_);
      if (running(purpose) == 0) co_return;
      last_operation_ended_ = ended;
    }
    if (co_await ended.wait(until) == async::WaitResult::timed_out) co_return;
  }
}

struct Client::Closure {
  std::chrono::steady_clock::time_point deadline;
  const bool in_callback;  // on callback_thread_
  std::vector<LeaseScheduler::Leases::Entry> leases;
  bool backend_closed = false;

  [[nodiscard]] bool has_untold_losses() const {
    return std::ranges::any_of(leases, [](const auto& entry) { return entry.item->loss_is_untold(); });
  }
};

namespace {

// How often a step of closing is tried if there is no memory for it. Enough for a moment without memory; beyond that,
// only what needs no memory is done.
constexpr int attempts_without_memory = 3;

// How often closing checks whether all losses are told.
constexpr std::chrono::milliseconds told_check{1};

struct LeasesToRelease {
  std::vector<LeaseScheduler::Leases::Entry> leases;
  CallLimits limits;
  const async::Event done;
  std::mutex mutex;
  std::size_t next = 0;
  std::size_t unfinished = 0;
  bool out_of_memory = false;
};

asio::awaitable<void> release_some(std::shared_ptr<LeasesToRelease> work) {
  for (;;) {
    std::shared_ptr<LeaseState> lease;
    {
      const std::lock_guard lock(work->mutex);
      if (work->next == work->leases.size()) co_return;
      lease = work->leases[work->next++].item;
    }
    bool out_of_memory = false;
    try {
      co_await lease->release_for_close(work->limits);
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
    }
    const std::lock_guard lock(work->mutex);
    work->out_of_memory = work->out_of_memory || out_of_memory;
    if (--work->unfinished == 0) work->done.set();
  }
}

}  // namespace

void Client::lose_leases(Closure& closure) noexcept {
  // Empty if this was done before.
  auto leases = scheduler_.close();
  std::erase_if(leases, [](const auto& entry) { return entry.item->client_closes() == LeaseState::AtClose::nothing; });
  if (!leases.empty()) closure.leases = std::move(leases);
}

void Client::lose_leases_without_memory(Closure& closure) noexcept {
  lose_leases(closure);
  while (closure.has_untold_losses()) {
    lost_threads_.run_if_starved();
    std::this_thread::sleep_for(told_check);
  }
}

asio::awaitable<void> Client::release_leases(Closure& closure) {
  if (closure.leases.empty()) co_return;
  const auto work = std::make_shared<LeasesToRelease>();
  work->leases = closure.leases;
  work->limits = {{}, closure.deadline};
  work->unfinished = work->leases.size();
  const std::size_t width = std::min(closing_width, work->leases.size());
  for (std::size_t i = 0; i < width; ++i) {
    try {
      async::spawn(executor_, release_some(work));
    } catch (const std::bad_alloc&) {
      if (i == 0) throw;
      break;  // fewer are enough
    }
  }
  (void)co_await work->done.wait(closure.deadline + grace);
  const std::lock_guard lock(work->mutex);
  if (work->out_of_memory) throw std::bad_alloc();
}

asio::awaitable<void> Client::run_closing_steps(Closure& closure) {
  // By contract, operations end within 50 ms of a stop request.
  co_await operations_ended(Operation::Purpose::work, std::max(closure.deadline, steady_clock::now() + grace));

  // Every holder is notified before the first lock is released. Background cleanup continues in parallel until the
  // deadline.
  lose_leases(closure);
  lost_threads_.run_if_starved();
  co_await release_leases(closure);
  co_await operations_ended(Operation::Purpose::cleanup, closure.deadline);
  std::stop_source(disposal_stop_).request_stop();
  co_await operations_ended(Operation::Purpose::cleanup, steady_clock::now() + grace);

  // Do not wait for callbacks of lost(): the destructor of a std::stop_callback already waits for its running callback.
  // But every token must be stopped.
  while (closure.has_untold_losses()) {
    lost_threads_.run_if_starved();
    (void)co_await async::sleep_until(steady_clock::now() + told_check);
  }
  lost_threads_.finish(async::CallbackThreads::QueuedFunctions::run);
  if (!closure.in_callback) co_await callback_thread_.idle(std::max(closure.deadline, steady_clock::now() + grace));
  callback_thread_.finish(async::CallbackThreads::QueuedFunctions::run);
  if (!std::exchange(closure.backend_closed, true)) {
    const CallLimits limits{{}, std::max(closure.deadline, steady_clock::now() + grace)};
    try {
      co_await checked(backend_->close(limits), {}, {});
    } catch (const LockError& error) {
      options_.log.debug(std::string("the backend could not be closed cleanly: ") + error.what());
    }
  }
  co_await LogAccess::delivered(options_.log, steady_clock::now() + grace);
}

asio::awaitable<bool> Client::close() { return close(shared_from_this()); }

asio::awaitable<bool> Client::close(std::shared_ptr<Client> /*kept_alive*/) {
  const bool in_callback = callback_thread_.is_this_thread();
  bool another_closes = false;
  {
    const std::lock_guard lock(mutex_);
    if (lifecycle_ == Lifecycle::closed) co_return true;
    another_closes = lifecycle_ == Lifecycle::closing;
    lifecycle_ = Lifecycle::closing;
  }
  if (another_closes) {
    // The thread that closes the client waits for this callback, so the callback must not wait for that thread.
    if (in_callback) co_return false;
    (void)co_await closed_.wait(steady_clock::time_point::max());
    co_return true;
  }

  backend_->closing_begins();
  std::stop_source(stop_).request_stop();
  // With a dispose_timeout of 0 no caller waits for the closing, which then gets the time of one operation.
  Closure closure{.deadline = steady_clock::now() + (options_.dispose_timeout > std::chrono::milliseconds(0)
                                                         ? options_.dispose_timeout
                                                         : operation_timeout_),
                  .in_callback = in_callback,
                  .leases = {}};
  for (int attempt = 1; attempt <= attempts_without_memory; ++attempt) {
    try {
      co_await run_closing_steps(closure);
      break;
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): tried again, see above
    }
  }
  // Nothing is left to do here unless there is no memory.
  lose_leases_without_memory(closure);

  const std::lock_guard lock(mutex_);
  lifecycle_ = Lifecycle::closed;
  closed_.set();
  co_return true;
}

namespace {

// closing is the client's close(). Its frame is allocated by the caller, which can repeat that.
asio::awaitable<void> close_in_background(asio::awaitable<bool> closing) {
  try {
    co_await std::move(closing);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): it only waited for another call that closes
  }
}

}  // namespace

std::shared_ptr<Client> Client::make(std::unique_ptr<Backend> backend, ClientOptions options,
                                     std::optional<asio::any_io_executor> executor) {
  // In a forked child the client's threads do not exist and cannot be joined, so the client is leaked.
  const auto destroy = [](const Client* client) {
    if (!client->is_forked()) delete client;  // NOLINT(*-owning-memory): this is the deleter
  };
  std::shared_ptr<Client> client(new Client(std::move(backend), std::move(options), std::move(executor)), destroy);
  if (client->counters_) MetricsAccess::add_client(*client->options_.metrics, client, client->counters_);
  return client;
}

void Client::add_reference() {
  const std::lock_guard lock(mutex_);
  ++references_;
}

void Client::remove_reference(Closing closing) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (--references_ != 0) return;
  }
  close(closing);
}

void Client::close(Closing closing) noexcept {
  if (is_forked()) return;
  const bool waits =
      closing == Closing::wait && !must_not_block() && options_.dispose_timeout != std::chrono::milliseconds(0);
  for (int attempt = 1; attempt <= attempts_without_memory; ++attempt) {
    try {
      if (waits) {
        async::run_blocking(executor_, close());
      } else {
        async::spawn(executor_, close_in_background(close()));
      }
      return;
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): tried again
    }
  }
  Closure closure{.deadline = {}, .in_callback = false, .leases = {}};
  lose_leases_without_memory(closure);
}

std::shared_ptr<void> Client::kept_open() {
  add_reference();
  return {nullptr, [client = shared_from_this()](void*) {
            if (!client->is_forked()) client->remove_reference(Closing::wait);
          }};
}

asio::any_io_executor executor_of(const ClientPtr& client) {
  return client ? client->completion_executor() : asio::any_io_executor(asio::system_executor());
}
std::exception_ptr refusal_in_child(const Client& client) {
  return client.is_forked() ? std::make_exception_ptr(os::OriginProcess::refusal()) : nullptr;
}
const asio::any_io_executor& coroutine_executor_of(const Client& client) { return client.coroutine_executor(); }

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
