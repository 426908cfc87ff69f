#include "locks/client.hpp"

#include "async/fork.hpp"
#include "core/bounded.hpp"
#include "core/liveness.hpp"
#include "core/random.hpp"
#include "core/retry_schedule.hpp"
#include "locks/lease_state.hpp"

#include <algorithm>
#include <utility>

namespace syncguard::detail {
namespace {

using std::chrono::steady_clock;

// How many leases are released at a time when a client is closed.
constexpr std::size_t closing_width = 64;

// What is given beyond dispose_timeout to what should have ended long ago.
constexpr std::chrono::milliseconds grace{500};

// How many callbacks of the application's may block before the next one has to wait.
constexpr std::size_t callback_threads = 16;

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
      fork_generation_(async::fork_generation()),
      backend_(std::move(backend)),
      operation_timeout_(checked_timeout(options_, *backend_)),
      scheduler_(std::make_shared<LeaseScheduler>(coroutine_executor_, io_thread_
                                                                           ? LeaseScheduler::Idle::keep_waiting
                                                                           : LeaseScheduler::Idle::let_executor_go)),
      notifier_("syncguard-note", callback_threads) {}

Client::~Client() = default;

// ---------------------------------------------------------------------------------------------------------------------
// Operations

Client::Operation::Operation(Client& client, Purpose purpose) : purpose_(purpose) {
  if (client.is_forked()) {
    throw LockError(ErrorCode::invalid_argument,
                    "this client was opened before a fork, and its threads are the parent's: open one after it");
  }
  const std::lock_guard lock(client.mutex_);
  if (client.life_ == Life::closed || (client.life_ == Life::closing && purpose == Purpose::work)) {
    throw LockError(ErrorCode::aborted, "the client was closed");
  }
  client_ = client.shared_from_this();
  ++client.running(purpose);
}

Client::Operation::~Operation() {
  const std::lock_guard lock(client_->mutex_);
  if (--client_->running(purpose_) == 0 && client_->last_operation_ended_) client_->last_operation_ended_->wake();
}

CallLimits Client::limits(std::stop_token stop) const {
  return {std::move(stop), steady_clock::now() + operation_timeout_};
}

CallLimits Client::disposal_limits() const {
  return {disposal_stop_.get_token(), steady_clock::now() + std::min(operation_timeout_, options_.dispose_timeout)};
}

double Client::random(const Callbacks& callbacks) const {
  if (callbacks.random) {
    try {
      return std::clamp(callbacks.random(), 0.0, 1.0);
    } catch (...) {  // NOLINT(bugprone-empty-catch): by contract; our own source takes over
    }
  }
  return core::random_fraction();
}

bool Client::is_forked() const noexcept { return fork_generation_ != async::fork_generation(); }

bool Client::must_not_block() const noexcept { return !io_thread_ || io_thread_->is_this_thread(); }

void Client::refuse_blocking(std::string_view twin) const {
  if (is_forked() || !must_not_block()) return;  // a forked child is refused by Operation
  throw LockError(ErrorCode::invalid_argument,
                  std::string(io_thread_ ? "a blocking call on the client's own I/O thread would wait for itself"
                                         : "a client with an executor of the caller's has no blocking calls") +
                      ": use " + std::string(twin));
}

// ---------------------------------------------------------------------------------------------------------------------
// Tidying up in the background

namespace {

asio::awaitable<void> retract(std::shared_ptr<Client> client, AcquireRequest request) {
  // Past this the lock is dead whatever happened to the request.
  const auto bound =
      steady_clock::now() + std::min<std::chrono::milliseconds>(request.ttl, std::chrono::hours(24)) + core::tolerance;
  const auto pause = std::make_shared<async::WakeUp>();
  try {
    const Client::Operation operation(*client, Client::Operation::Purpose::tidying_up);
    for (int retry = 1;; ++retry) {
      const CallLimits limits = client->disposal_limits();
      try {
        co_await client->checked(client->backend().retract(request, limits), request.key.str(), request.lock_id.view());
        co_return;
      } catch (const LockError& error) {
        if (!error.retryable()) throw;
      }
      const auto now = steady_clock::now();
      if (now >= bound) co_return;
      const auto delay = core::retry_delay(WaitOptions{}, retry, client->random({}));
      // Closing waits for this, as long as it can.
      const auto reason = co_await pause->wait(std::min(now + delay, bound), limits.stop);
      if (reason == async::WakeUp::Reason::stopped) co_return;
    }
  } catch (const LockError& error) {
    client->log().debug(std::string("an acquire in doubt could not be retracted; its ttl will: ") + error.what());
  }
}

asio::awaitable<void> leave(std::shared_ptr<Client> client, std::unique_ptr<WaitTicket> ticket) {
  try {
    const Client::Operation operation(*client, Client::Operation::Purpose::tidying_up);
    const CallLimits limits = client->disposal_limits();
    co_await client->checked(ticket->leave(limits), {}, {});
  } catch (const LockError& error) {
    client->log().debug(std::string("a place in a queue could not be given up; others will skip it: ") + error.what());
  }
}

}  // namespace

void Client::retract_in_background(const AcquireRequest& request) {
  async::spawn(executor_, retract(shared_from_this(), request));
}

void Client::leave_in_background(std::unique_ptr<WaitTicket> ticket) {
  async::spawn(executor_, leave(shared_from_this(), std::move(ticket)));
}

// ---------------------------------------------------------------------------------------------------------------------
// Closing

asio::awaitable<void> Client::operations_ended(Operation::Purpose purpose, steady_clock::time_point until) {
  for (;;) {
    std::shared_ptr<async::WakeUp> ended;
    {
      const std::lock_guard lock(mutex_);
      if (running(purpose) == 0) co_return;
      ended = std::make_shared<async::WakeUp>();
      last_operation_ended_ = ended;
    }
    if (co_await ended->wait(until, {}) == async::WakeUp::Reason::timed_out) co_return;
  }
}

namespace {

struct LeasesToRelease {
  std::vector<std::shared_ptr<LeaseState>> leases;
  CallLimits limits;
  std::shared_ptr<async::WakeUp> done;
  std::mutex mutex;
  std::size_t next = 0;
  std::size_t unfinished = 0;
};

asio::awaitable<void> release_some(std::shared_ptr<LeasesToRelease> work) {
  for (;;) {
    std::shared_ptr<LeaseState> lease;
    {
      const std::lock_guard lock(work->mutex);
      if (work->next == work->leases.size()) co_return;
      lease = work->leases[work->next++];
    }
    co_await lease->release_for_close(work->limits);
    const std::lock_guard lock(work->mutex);
    if (--work->unfinished == 0) work->done->wake();
  }
}

}  // namespace

asio::awaitable<void> Client::release_leases(const std::vector<std::shared_ptr<LeaseState>>& leases,
                                             const CallLimits& limits) {
  if (leases.empty()) co_return;
  const auto work = std::make_shared<LeasesToRelease>();
  work->leases = leases;
  work->limits = limits;
  work->done = std::make_shared<async::WakeUp>();
  work->unfinished = leases.size();
  const std::size_t width = std::min(closing_width, leases.size());
  for (std::size_t i = 0; i < width; ++i) async::spawn(executor_, release_some(work));
  co_await work->done->wait(limits.deadline + grace, {});
}

asio::awaitable<bool> Client::close() {
  const auto self = shared_from_this();
  const bool in_callback = notifier_.is_this_thread();
  const auto deadline = steady_clock::now() + options_.dispose_timeout;
  std::shared_ptr<async::WakeUp> closed_by_another;
  {
    const std::lock_guard lock(mutex_);
    if (life_ == Life::closed) co_return true;
    if (life_ == Life::closing) {
      // Whoever closes waits for this callback, so that it must not wait for them.
      if (in_callback) co_return false;
      closed_by_another = std::make_shared<async::WakeUp>();
      waiting_for_close_.push_back(closed_by_another);
    }
    life_ = Life::closing;
  }
  if (closed_by_another) {
    co_await closed_by_another->wait(steady_clock::time_point::max(), {});
    co_return true;
  }

  // Told to stop, operations end within 50 ms by contract.
  std::stop_source(stop_).request_stop();
  co_await operations_ended(Operation::Purpose::work, std::max(deadline, steady_clock::now() + grace));

  // What tidies up goes on beside the releases, for as long as there is time.
  const auto leases = scheduler_->close();
  const CallLimits limits{{}, deadline};
  co_await release_leases(leases, limits);
  co_await operations_ended(Operation::Purpose::tidying_up, deadline);
  std::stop_source(disposal_stop_).request_stop();
  co_await operations_ended(Operation::Purpose::tidying_up, steady_clock::now() + grace);

  for (const auto& lease : leases) lease->client_closed();
  if (!in_callback) co_await notifier_.idle(std::max(deadline, steady_clock::now() + grace));
  notifier_.finish(async::CallbackThreads::Leftover::run);
  const CallLimits closing_limits{{}, std::max(deadline, steady_clock::now() + grace)};
  try {
    co_await checked(backend_->close(closing_limits), {}, {});
  } catch (const LockError& error) {
    options_.log.debug(std::string("the backend could not be closed cleanly: ") + error.what());
  }

  std::vector<std::shared_ptr<async::WakeUp>> waiting;
  {
    const std::lock_guard lock(mutex_);
    life_ = Life::closed;
    waiting.swap(waiting_for_close_);
  }
  for (const auto& wake_up : waiting) wake_up->wake();
  co_return true;
}

namespace {

asio::awaitable<void> close_in_background(std::shared_ptr<Client> client) { co_await client->close(); }

}  // namespace

ClientHandle::~ClientHandle() {
  close();
  // In a forked child the client's threads do not exist, so it can be neither closed nor destroyed.
  if (client_->is_forked()) new std::shared_ptr<Client>(client_);  // NOLINT(*-owning-memory): leaked on purpose
}

void ClientHandle::close() noexcept {
  if (client_->is_forked()) return;
  if (client_->must_not_block()) {
    async::spawn(client_->executor(), close_in_background(client_));
  } else {
    async::run_blocking(client_->executor(), client_->close());
  }
}

std::shared_ptr<Client> client_of(const ClientHandle& handle) { return handle.client(); }
std::shared_ptr<Client> client_of(const LeaseState& lease) { return lease.client(); }
asio::any_io_executor executor_of(const Client& client) { return client.executor(); }
asio::any_io_executor coroutine_executor_of(const Client& client) { return client.coroutine_executor(); }

}  // namespace syncguard::detail
