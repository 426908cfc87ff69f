// How the cost of an operation grows with the number of held keys, the number of waiters and the length of keys, and
// how much memory a waiter needs.

#include "bench.hpp"
#include "held_keys.hpp"

#include <asio/co_spawn.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>

#include <atomic>
#include <cstdio>
#include <exception>
#include <functional>
#include <semaphore>
#include <thread>

namespace syncguard::bench {
namespace {

const AcquireOptions patient{
    .ttl = 10min, .wait = {.timeout = 10min, .max_retries = WaitOptions::unlimited_retries, .retry_delay = 10s}};

double microseconds_per_cycle(Locks& locks, const Key& key, double seconds) {
  const auto start = Clock::now();
  const auto end = start + std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
  long cycles = 0;
  for (; Clock::now() < end; ++cycles) (void)locks.acquire(key);
  return Seconds(Clock::now() - start).count() * 1e6 / static_cast<double>(cycles);
}

// Callers that wait for one key, and wait again after each of their turns.
class Crowd {
 public:
  void add(const Locks& locks) {
    locks.async_acquire("contested", patient, [this, locks](const std::exception_ptr& error, const Lease&) {
      if (error) return;
      ++turns_;
      if (!stop_) add(locks);
    });
  }
  void stop() { stop_ = true; }

  [[nodiscard]] double microseconds_per_turn(double seconds) const {
    const auto start = Clock::now();
    const long before = turns_;
    // At least one turn.
    while (turns_ == before || Seconds(Clock::now() - start).count() < seconds) std::this_thread::sleep_for(1ms);
    const long turns = turns_ - before;
    return Seconds(Clock::now() - start).count() * 1e6 / static_cast<double>(turns);
  }

 private:
  std::atomic<long> turns_{0};
  std::atomic<bool> stop_{false};
};

// How often a waiter has joined a queue.
class Joins {
 public:
  Joins& operator++() {
    ++count_;
    return *this;
  }
  // Waits until there were so many, but not forever.
  [[nodiscard]] bool wait_for(int count) const {
    while (count_ < count && Clock::now() < give_up_at_) std::this_thread::sleep_for(1ms);
    if (count_ >= count) return true;
    std::fprintf(stderr, "only %d waiters could join a queue within 30 s\n", count_.load());
    return false;
  }

 private:
  const Clock::time_point give_up_at_ = Clock::now() + 30s;
  std::atomic<int> count_{0};
};

// Forwards to a backend that several clients can share, so that thousands of clients need no connections of their own.
class SharedBackend : public Backend {
 public:
  SharedBackend(std::shared_ptr<Backend> shared, Joins& joins) : shared_(std::move(shared)), joins_(joins) {}

  [[nodiscard]] Capabilities capabilities() const override { return shared_->capabilities(); }
  asio::awaitable<AcquireReply> acquire(const AcquireRequest& request, const CallLimits& limits) override {
    return shared_->acquire(request, limits);
  }
  asio::awaitable<ReleaseReply> release(const LockId& id, const CallLimits& limits) override {
    return shared_->release(id, limits);
  }
  asio::awaitable<ExtendReply> extend(const LockId& id, std::chrono::milliseconds ttl,
                                      const CallLimits& limits) override {
    return shared_->extend(id, ttl, limits);
  }
  asio::awaitable<bool> is_locked(const Key& key, const CallLimits& limits) override {
    return shared_->is_locked(key, limits);
  }
  asio::awaitable<std::optional<LockRecord>> lookup(const Key& key, const CallLimits& limits) override {
    return shared_->lookup(key, limits);
  }
  asio::awaitable<std::optional<LockRecord>> lookup(const LockId& id, const CallLimits& limits) override {
    return shared_->lookup(id, limits);
  }
  asio::awaitable<void> retract(const AcquireRequest& request, const CallLimits& limits) override {
    return shared_->retract(request, limits);
  }
  asio::awaitable<std::unique_ptr<WaitTicket>> join(const Key& key, const LockId& waiter, std::function<void()> wake,
                                                    const CallLimits& limits) override {
    auto ticket = co_await shared_->join(key, waiter, std::move(wake), limits);
    ++joins_;
    co_return ticket;
  }

 private:
  const std::shared_ptr<Backend> shared_;
  Joins& joins_;
};

// Always includes the first count.
std::vector<int> up_to(std::vector<int> counts, int limit) {
  std::erase_if(counts, [&, first = counts.front()](int count) { return count > std::max(first, limit); });
  return counts;
}

void measure_held_keys(const Settings& settings, Report& report, double share) {
  auto locks = open(settings.url);
  HeldKeys held(locks, "held");
  for (const int count : up_to({1, 10, 100, 1000, 10'000, 100'000}, settings.leases)) {
    held.grow_to(static_cast<std::size_t>(count));
    report.add({.group = "growth: a blocking cycle with other keys held",
                .name = std::to_string(count) + " held",
                .value = microseconds_per_cycle(locks, "free", share),
                .unit = "us"});
  }
}

void report_memory(Report& report, const std::string& name, int waiters, double before) {
  constexpr int enough_to_measure = 1000;
  if (waiters < enough_to_measure) return;
  report.add(
      {.group = "memory of a waiter", .name = name, .value = (allocated_bytes() - before) / waiters, .unit = "bytes"});
}

// All waiters of one client and key share one place in the store's queue.
void measure_waiters_of_one_client(const Settings& settings, Report& report, double share) {
  for (const int waiters : up_to({1, 8, 64, 512, 10'000}, std::max(512, settings.leases / 10))) {
    auto locks = open(settings.url);
    Crowd crowd;
    const double before = allocated_bytes();
    for (int i = 0; i < waiters + 1; ++i) crowd.add(locks);
    report_memory(report, std::to_string(waiters) + " waiters of one client on one key", waiters, before);
    report.add({.group = "growth: a hand-off with more waiters of one client on the key",
                .name = std::to_string(waiters) + " waiters",
                .value = crowd.microseconds_per_turn(share),
                .unit = "us"});
    crowd.stop();
    locks.close();
  }
}

// Each waiter has its own place in the store's queue.
void measure_waiting_clients(const Settings& settings, Report& report, double share) {
  for (const int waiters : up_to({2, 8, 64, 512, 10'000}, settings.leases / 10)) {
    asio::io_context context;
    const std::shared_ptr<Backend> backend = backend_of(settings);
    Joins joins;
    std::vector<Locks> clients;
    for (int i = 0; i < waiters; ++i) {
      clients.push_back(open_on(context.get_executor(), std::make_unique<SharedBackend>(backend, joins)));
    }
    auto work = asio::make_work_guard(context);
    std::jthread runs([&] { context.run(); });
    Crowd crowd;
    bool all_joined = true;
    {
      auto gate = open(settings.url);
      const auto closed = gate.acquire("contested", {.ttl = 10min});
      for (int i = 0; i < waiters && all_joined; ++i) {
        crowd.add(clients[static_cast<std::size_t>(i)]);
        all_joined = joins.wait_for(i + 1 - max_in_flight);
      }
      all_joined = all_joined && joins.wait_for(waiters);
    }
    if (all_joined) {
      report.add({.group = "growth: a hand-off with more waiting clients",
                  .name = std::to_string(waiters) + " clients",
                  .value = crowd.microseconds_per_turn(share),
                  .unit = "us"});
    }
    crowd.stop();
    InFlight closing;
    for (const auto& client : clients) {
      closing.begin();
      client.async_close([&](const std::exception_ptr&, bool) { closing.end(); });
    }
    closing.wait();
    asio::co_spawn(context, backend->close({{}, Clock::now() + 2s}), [&](const std::exception_ptr&) { work.reset(); });
  }
}

void measure_keys_with_a_waiter(const Settings& settings, Report& report, double share) {
  for (const int keys : up_to({100, 1000, 10'000}, settings.leases / 10)) {
    const auto count = static_cast<std::size_t>(keys);
    auto holder = open(settings.url);
    Joins joins;
    Locks waiting(std::make_unique<SharedBackend>(backend_of(settings), joins));
    HeldKeys held(holder, "waited for");
    held.grow_to(count);
    std::counting_semaphore<> turns{0};
    const double before = allocated_bytes();
    bool all_joined = true;
    for (int i = 0; i < keys && all_joined; ++i) {
      waiting.async_acquire(numbered("waited for", static_cast<std::size_t>(i)), patient,
                            [&](const std::exception_ptr&, const Lease&) { turns.release(); });
      all_joined = joins.wait_for(i + 1 - max_in_flight);
    }
    if (!all_joined || !joins.wait_for(keys)) {
      waiting.close();
      break;
    }
    report_memory(report, std::to_string(keys) + " keys with a waiter each", keys, before);
    const std::string name = std::to_string(keys) + " keys";
    report.add({.group = "growth: a blocking cycle with a waiter on each of other keys",
                .name = name,
                .value = microseconds_per_cycle(holder, "free", share),
                .unit = "us"});
    const auto start = Clock::now();
    std::size_t handed_off = 0;
    for (; handed_off < count && Seconds(Clock::now() - start).count() < share; ++handed_off) {
      held.release(handed_off);
      turns.acquire();
    }
    report.add({.group = "growth: a hand-off with a waiter on each of other keys",
                .name = name,
                .value = Seconds(Clock::now() - start).count() * 1e6 / static_cast<double>(handed_off),
                .unit = "us"});
    waiting.close();
  }
}

void measure_long_keys(const Settings& settings, Report& report, double share) {
  for (const std::size_t length : {8U, 64U, 512U}) {
    auto locks = open(settings.url);
    report.add({.group = "growth: a blocking cycle with longer keys",
                .name = std::to_string(length) + " bytes",
                .value = microseconds_per_cycle(locks, std::string(length, 'k'), share),
                .unit = "us"});
  }
}

}  // namespace

void measure_growth(const Settings& settings, Report& report) {
  const double share = settings.seconds / 5;
  measure_held_keys(settings, report, share);
  measure_waiters_of_one_client(settings, report, share);
  measure_waiting_clients(settings, report, share);
  measure_keys_with_a_waiter(settings, report, share);
  measure_long_keys(settings, report, share);
}

}  // namespace syncguard::bench
