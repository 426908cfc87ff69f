// How the cost of an operation grows with the number of held keys, the number of waiters and the length of keys, and
// how much memory a waiter needs.

#include "bench.hpp"
#include "held_keys.hpp"

#include <syncguard/forwarding_backend.hpp>

#include <atomic>
#include <cstdio>
#include <exception>
#include <functional>
#include <optional>
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

// Callers that wait for a key, and wait again after each of their turns.
class Crowd {
 public:
  explicit Crowd(const Locks& locks) : locks_(locks) {}

  void add(const Key& key) {
    locks_.async_acquire(key, patient, [this, key](const std::exception_ptr& error, const Lease&) {
      if (error) return;
      ++turns_;
      if (!stop_) add(key);
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
  Locks locks_;
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
  // Starts so many waiters, a limited number at a time. Returns whether all of them have joined within a minute.
  template <typename StartWaiter>
  [[nodiscard]] bool start(int waiters, StartWaiter start_waiter) const {
    const int before = count_;
    const auto give_up_at = Clock::now() + 60s;
    for (int i = 0; i < waiters; ++i) {
      start_waiter(static_cast<std::size_t>(i));
      if (!wait_for(before + i + 1 - max_in_flight, give_up_at)) return false;
    }
    return wait_for(before + waiters, give_up_at);
  }

 private:
  [[nodiscard]] bool wait_for(int count, Clock::time_point give_up_at) const {
    while (count_ < count && Clock::now() < give_up_at) std::this_thread::sleep_for(1ms);
    if (count_ >= count) return true;
    std::fprintf(stderr, "only %d waiters could join a queue in time\n", count_.load());
    return false;
  }

  std::atomic<int> count_{0};
};

// Counts the waiters that join a queue of a backend.
class CountingBackend : public ForwardingBackend {
 public:
  // replaced: if given, all keys become this one. A client that waits for many keys then has as many places in one
  // queue, like many clients that wait for one key.
  CountingBackend(std::shared_ptr<Backend> backend, Joins& joins, std::optional<Key> replaced = std::nullopt)
      : ForwardingBackend(std::move(backend)), joins_(joins), replaced_(std::move(replaced)) {}

  asio::awaitable<AcquireReply> acquire(const AcquireRequest& request, const CallLimits& limits) override {
    const AcquireRequest changed = stored(request);
    co_return co_await inner().acquire(changed, limits);
  }
  asio::awaitable<bool> is_locked(const Key& key, const CallLimits& limits) override {
    return inner().is_locked(stored(key), limits);
  }
  asio::awaitable<std::optional<LockRecord>> lookup(const Key& key, const CallLimits& limits) override {
    return inner().lookup(stored(key), limits);
  }
  using ForwardingBackend::lookup;
  asio::awaitable<void> retract(const AcquireRequest& request, const CallLimits& limits) override {
    const AcquireRequest changed = stored(request);
    co_await inner().retract(changed, limits);
  }
  asio::awaitable<std::unique_ptr<WaitTicket>> join(const AcquireRequest& request, std::function<void()> wake,
                                                    const CallLimits& limits) override {
    const AcquireRequest changed = stored(request);
    auto ticket = co_await inner().join(changed, std::move(wake), limits);
    ++joins_;
    co_return ticket;
  }

 private:
  [[nodiscard]] const Key& stored(const Key& key) const { return replaced_ ? *replaced_ : key; }
  [[nodiscard]] AcquireRequest stored(AcquireRequest request) const {
    if (replaced_) request.key = *replaced_;
    return request;
  }

  Joins& joins_;
  const std::optional<Key> replaced_;
};

// Always includes the first count.
std::vector<int> up_to(std::vector<int> counts, int limit) {
  std::erase_if(counts, [&, first = counts.front()](int count) { return count > std::max(first, limit); });
  return counts;
}

// How long each growing cost is measured.
double share_of(const Settings& settings) { return settings.seconds / 5; }

// Many waiters are measured for longer. Otherwise, the work that a client does for all of them every ten seconds may
// not fall into the measurement.
double share_of(const Settings& settings, int waiters) {
  return waiters < 10'000 ? share_of(settings) : 2 * settings.seconds;
}

void measure_held_keys(const Settings& settings, Report& report) {
  auto locks = open(settings.url);
  HeldKeys held(locks, "held");
  for (const int count : up_to({1, 10, 100, 1000, 10'000, 100'000}, settings.leases)) {
    held.grow_to(static_cast<std::size_t>(count));
    report.add({.group = "growth: a blocking cycle with other keys held",
                .name = std::to_string(count) + " held",
                .value = microseconds_per_cycle(locks, "free", share_of(settings)),
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
void measure_waiters_of_one_client(const Settings& settings, Report& report) {
  for (const int waiters : up_to({1, 8, 64, 512, 10'000}, std::max(512, settings.leases / 10))) {
    auto locks = open(settings.url);
    Crowd crowd(locks);
    const double before = allocated_bytes();
    for (int i = 0; i < waiters + 1; ++i) crowd.add("contested");
    report_memory(report, std::to_string(waiters) + " waiters of one client on one key", waiters, before);
    report.add({.group = "growth: a hand-off with more waiters of one client on the key",
                .name = std::to_string(waiters) + " waiters",
                .value = crowd.microseconds_per_turn(share_of(settings, waiters)),
                .unit = "us"});
    crowd.stop();
    locks.close();
  }
}

// Each waiter has its own place in the store's queue.
void measure_places(const Settings& settings, Report& report) {
  for (const int waiters : up_to({2, 8, 64, 512, 10'000}, settings.leases / 10)) {
    Joins joins;
    Locks locks(std::make_unique<CountingBackend>(backend_of(settings), joins, "contested"));
    Crowd crowd(locks);
    {
      auto gate = open(settings.url);
      const auto closed = gate.acquire("contested", {.ttl = 10min});
      if (!joins.start(waiters, [&](std::size_t i) { crowd.add(numbered("contested", i)); })) {
        locks.close();
        break;
      }
    }
    report.add({.group = "growth: a hand-off with more waiting clients",
                .name = std::to_string(waiters) + " clients",
                .value = crowd.microseconds_per_turn(share_of(settings, waiters)),
                .unit = "us"});
    crowd.stop();
    locks.close();
  }
}

// Waiters for the keys "waited for 0", "waited for 1" and so on, all of which are held.
class WaitedForKeys {
 public:
  WaitedForKeys(const Settings& settings, int keys)
      : keys_(keys),
        holder_(open(settings.url)),
        held_(holder_, name),
        waiting_(std::make_unique<CountingBackend>(backend_of(settings), joins_)) {}

  // All keys must be free.
  void hold() {
    held_.release_all();
    held_.grow_to(static_cast<std::size_t>(keys_));
  }
  // Returns whether all waiters could join.
  bool join() {
    return joins_.start(keys_, [this](std::size_t i) {
      waiting_.async_acquire(numbered(name, i), patient,
                             [this](const std::exception_ptr&, const Lease&) { turns_.release(); });
    });
  }
  // Hands off key after key, but not longer than until then. Returns their number.
  std::size_t hand_off(Clock::time_point end) {
    std::size_t count = 0;
    for (; count < static_cast<std::size_t>(keys_) && Clock::now() < end; ++count) {
      held_.release(count);
      turns_.acquire();
    }
    return count;
  }
  Locks& holder() { return holder_; }
  void close() { waiting_.close(); }

 private:
  static constexpr const char* name = "waited for";

  const int keys_;
  Joins joins_;
  std::counting_semaphore<> turns_{0};
  Locks holder_;
  HeldKeys held_;
  Locks waiting_;
};

void measure_keys_with_a_waiter(const Settings& settings, Report& report) {
  for (const int keys : up_to({100, 1000, 10'000}, settings.leases / 10)) {
    const double share = share_of(settings, keys);
    WaitedForKeys waited_for(settings, keys);
    waited_for.hold();
    const double before = allocated_bytes();
    bool all_joined = waited_for.join();
    if (all_joined) {
      report_memory(report, std::to_string(keys) + " keys with a waiter each", keys, before);
      const std::string name = std::to_string(keys) + " keys";
      report.add({.group = "growth: a blocking cycle with a waiter on each of other keys",
                  .name = name,
                  .value = microseconds_per_cycle(waited_for.holder(), "free", share),
                  .unit = "us"});
      Seconds spent{};
      std::size_t handed_off = 0;
      for (;;) {
        const auto start = Clock::now();
        handed_off += waited_for.hand_off(start + std::chrono::duration_cast<Clock::duration>(Seconds(share) - spent));
        spent += Clock::now() - start;
        if (spent.count() >= share || !all_joined) break;
        waited_for.hold();
        all_joined = waited_for.join();
      }
      report.add({.group = "growth: a hand-off with a waiter on each of other keys",
                  .name = name,
                  .value = spent.count() * 1e6 / static_cast<double>(handed_off),
                  .unit = "us"});
    }
    waited_for.close();
    if (!all_joined) break;
  }
}

void measure_long_keys(const Settings& settings, Report& report) {
  for (const std::size_t length : {8U, 64U, 512U}) {
    auto locks = open(settings.url);
    report.add({.group = "growth: a blocking cycle with longer keys",
                .name = std::to_string(length) + " bytes",
                .value = microseconds_per_cycle(locks, std::string(length, 'k'), share_of(settings)),
                .unit = "us"});
  }
}

}  // namespace

void measure_growth(const Settings& settings, Report& report) {
  measure_held_keys(settings, report);
  measure_waiters_of_one_client(settings, report);
  measure_places(settings, report);
  measure_keys_with_a_waiter(settings, report);
  measure_long_keys(settings, report);
}

}  // namespace syncguard::bench
