// The rules of a key, on the memory backend.

#include "support/key_rules.hpp"
#include "backends/memory/store.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace syncguard::testing {
namespace {

// Its entries need no sign of life.
class MemoryKeyRules : public key_rules::Store {
 public:
  [[nodiscard]] key_rules::Features features() const override {
    auto features = key_rules::all_features;
    features.erase("seen");
    features.erase("several turns");
    return features;
  }

  void write(const key_rules::View& view) override {
    state_.locks.clear();
    state_.keys_by_id.clear();
    state_.fence_counters.clear();
    state_.queues.clear();
    if (view.holder) {
      state_.put({.key = key_rules::key,
                  .lock_id = key_rules::id_of(view.holder->id),
                  .expires_at = key_rules::time_at(view.holder->until),
                  .acquired_at = key_rules::now,
                  .fence = Fence(view.holder->fence)});
    }
    if (view.counter != 0) state_.fence_counters[key_rules::key] = view.counter;
    if (view.turns.empty() && view.queue.empty()) return;
    auto& queue = state_.queues[key_rules::key];
    for (const auto& turn : view.turns) {
      queue.turn = {{key_rules::id_of(turn.id), key_rules::place_at(turn.place)}, key_rules::time_at(turn.until)};
    }
    for (const auto& entry : view.queue) {
      const auto id = key_rules::id_of(entry.id);
      const auto place = key_rules::place_at(entry.place);
      queue.places[id] = place;
      queue.waiting.emplace(std::pair(place, id),
                            State::Waiting{{id, place, std::chrono::milliseconds(entry.reservation)}, wake(entry.id)});
    }
  }

  key_rules::Outcome step(const std::string& name, const key_rules::Json& arguments) override {
    woken_.clear();
    auto reply = reply_of(name, arguments);
    return {std::move(reply), woken_};
  }

  key_rules::View read() override {
    key_rules::View view;
    if (const auto found = state_.locks.find(key_rules::key); found != state_.locks.end()) {
      const auto& lock = found->second;
      view.holder =
          key_rules::Holder{key_rules::name_of(lock.lock_id), key_rules::relative(lock.expires_at), lock.fence.value()};
    }
    const auto counter = state_.fence_counters.find(key_rules::key);
    if (counter != state_.fence_counters.end()) view.counter = counter->second;
    const auto found = state_.queues.find(key_rules::key);
    if (found == state_.queues.end()) return view;
    const auto& queue = found->second;
    if (queue.turn) {
      view.turns.push_back({key_rules::name_of(queue.turn->entry.waiter),
                            key_rules::relative_place(queue.turn->entry.place),
                            key_rules::relative(queue.turn->until)});
    }
    EXPECT_EQ(queue.waiting.size(), queue.places.size());
    for (const auto& [place, waiting] : queue.waiting) {
      view.queue.push_back({key_rules::name_of(waiting.entry.waiter), key_rules::relative_place(waiting.entry.place),
                            waiting.entry.reservation.count()});
    }
    return view;
  }

 private:
  using State = MemoryStore::State;

  State::Wake wake(const std::string& name) {
    return [this, name] { woken_ += name; };
  }

  key_rules::Json reply_of(const std::string& name, const key_rules::Json& arguments) {
    const auto call = [](const State::Wake& wake) {
      if (wake) wake();
    };
    if (name == "acquire") {
      try {
        return key_rules::reply_of(state_.acquire(key_rules::acquire_request(arguments)));
      } catch (const LockError&) {
        return key_rules::counter_at_end_reply;
      }
    }
    if (name == "break") {
      const auto [broken, woken] = state_.break_lock(key_rules::key, Fence(arguments.at("fence").get<std::uint64_t>()));
      call(woken);
      return key_rules::broken_reply(broken);
    }
    const auto id = key_rules::id_in(arguments);
    if (name == "release") {
      const auto [reply, woken] = state_.release(id);
      call(woken);
      return key_rules::reply_of(reply);
    }
    if (name == "extend") {
      return key_rules::reply_of(state_.extend(id, std::chrono::milliseconds(arguments.at("ttl"))));
    }
    if (name == "leave") {
      call(state_.leave(key_rules::key, id));
      return key_rules::left_reply;
    }
    const auto request = key_rules::waiter_request(arguments);
    const auto own = wake(arguments.at("id"));
    return key_rules::reply_of(name == "join" ? state_.join(key_rules::key, request, own)
                                              : state_.look(key_rules::key, request, own));
  }

  State state_{[] { return key_rules::now; }};
  std::string woken_;
};

TEST(MemoryStore, FollowsEveryRuleOfAKey) {
  MemoryKeyRules store;
  key_rules::run_cases(store);
}

TEST(MemoryStore, FollowsTheRulesInRandomSteps) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    SCOPED_TRACE(seed);
    MemoryKeyRules store;
    key_rules::run_random_steps(store, seed, 2000);
  }
}

}  // namespace
}  // namespace syncguard::testing
