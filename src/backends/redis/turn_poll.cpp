#include "backends/redis/turn_poll.hpp"

#include "async/event.hpp"
#include "async/spawn.hpp"
#include "core/durations.hpp"

#include <syncguard/error.hpp>

#include <asio/require.hpp>

#include <algorithm>
#include <utility>

namespace syncguard::redis {
namespace {

using std::chrono::milliseconds;

// With a reservation of 300 ms, a free key is noticed well within the half second that dead and frozen waiters may
// cost.
constexpr milliseconds min_pause{200};
constexpr milliseconds max_pause{300};
TurnPoll::Duration pause_between_polls() { return core::random_between(min_pause, max_pause); }

// The maximum for one request, which then keeps the server busy for a fraction of a millisecond. Between two requests
// the server has time for others.
constexpr std::size_t batch = 64;
static_assert(batch <= ReplyReader::max_elements);
constexpr milliseconds pause_between_batches{1};

}  // namespace

void TurnPoll::add(const asio::any_io_executor& executor, const Actions& actions, const LockId& id, Waiter waiter) {
  const std::lock_guard lock(mutex_);
  entries_.try_emplace(id, Entry{std::move(waiter), {}});
  if (std::exchange(polling_, true)) return;
  async::spawn_on(asio::require(executor, asio::execution::blocking.never), poll_until_empty(actions),
                  shared_from_this());
}

void TurnPoll::remove(const LockId& id) {
  const std::lock_guard lock(mutex_);
  entries_.erase(id);
}

void TurnPoll::set_place(const LockId& id, std::string place) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  auto& entry = found->second;
  // Other waiters may be ahead of it now.
  if (!place.empty() && place != entry.place) entry.rounds_left_out = 0;
  entry.place = std::move(place);
}

asio::awaitable<void> TurnPoll::poll_until_empty(Actions actions) {
  auto next = Clock::now() + pause_between_polls();
  while (co_await async::sleep_until(next, stop_.get_token()) != async::WaitResult::stopped) {
    const auto start = Clock::now();
    const auto waiters = waiters_of_next_round();
    if (!waiters) co_return;
    const auto& ids = *waiters;
    auto soonest = pause_between_polls();
    for (auto first = ids.begin(); first != ids.end();) {
      const auto last = first + std::min<std::ptrdiff_t>(batch, ids.end() - first);
      std::vector<LockId> asked(first, last);
      const auto next_turn = co_await poll(actions, std::move(asked));
      soonest = std::min(soonest, next_turn);
      first = last;
      if (first != ids.end())
        (void)co_await async::sleep_until(Clock::now() + pause_between_batches, stop_.get_token());
    }
    next = start + soonest;
  }
}

std::optional<std::vector<LockId>> TurnPoll::waiters_of_next_round() {
  const std::lock_guard lock(mutex_);
  polling_ = !entries_.empty();
  if (!polling_) return std::nullopt;
  std::vector<LockId> ids;
  for (auto& [id, entry] : entries_) {
    if (entry.rounds_left_out > 0) {
      --entry.rounds_left_out;
    } else {
      ids.push_back(id);
    }
  }
  return ids;
}

// Also removes ids from the list whose waiters no longer exist.
Arguments TurnPoll::arguments_for(std::vector<LockId>& ids) {
  const std::lock_guard lock(mutex_);
  std::erase_if(ids, [this](const LockId& id) { return !entries_.contains(id); });
  Arguments arguments(ids.size() * 3);
  for (const auto& id : ids) {
    const auto& key = entries_.at(id).waiter.key;
    arguments.add({names_.lock(key), names_.turn(key), names_.queue(key)});
  }
  for (const auto& id : ids) {
    const auto& entry = entries_.at(id);
    arguments.add({id.view(), entry.place, std::to_string(entry.waiter.reservation.count())});
  }
  return arguments;
}

// Returns the time until the next poll.
asio::awaitable<TurnPoll::Duration> TurnPoll::poll(const Actions& actions, std::vector<LockId> ids) {
  auto soonest = Duration::max();
  const Arguments arguments = arguments_for(ids);
  if (ids.empty()) co_return soonest;
  try {
    const Reply reply = co_await actions.run(arguments);
    if (reply.elements.size() != ids.size()) co_return soonest;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto answer = reply.elements[i].integer;
      if (answer > 0 && answer < max_pause.count()) soonest = std::min<Duration>(soonest, milliseconds(answer + 1));
      if (answer == 0) actions.wake(ids[i]);
      if (answer < -1) leave_out(ids[i], -(answer + 1));
    }
  } catch (const LockError& error) {
    // Not reported: the waiters' own attempts meet the same error and report it.
    log_.debug(std::string("polling for turns failed: ") + error.what());
  }
  co_return soonest;
}

void TurnPoll::leave_out(const LockId& id, std::int64_t rounds) {
  constexpr std::int64_t max_rounds = 40;
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  // Random, so that waiters that joined together do not poll together.
  std::uniform_int_distribution<std::int64_t> around(0, 2 * std::min(rounds, max_rounds));
  found->second.rounds_left_out = around(random_);
}

}  // namespace syncguard::redis
