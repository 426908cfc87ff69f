// Runs the cases of tests/vectors/key_rules.json, and random ones, against a store: it stores a view, makes one step,
// and reads the view back.
#pragma once

#include "core/key_rules.hpp"
#include "support/vectors.hpp"

#include <syncguard/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace syncguard::testing::key_rules {

using Json = nlohmann::json;
using std::chrono::milliseconds;

// The time of every step. Times and places in views are relative to it, in milliseconds.
inline constexpr Timestamp now{milliseconds(1'700'000'000'000)};
inline Timestamp time_at(std::int64_t relative) { return now + milliseconds(relative); }
inline std::int64_t relative(Timestamp time) { return (time - now).count(); }
inline std::int64_t place_at(std::int64_t relative) { return now.time_since_epoch().count() + relative; }
inline std::int64_t relative_place(std::int64_t place) { return place - now.time_since_epoch().count(); }

inline LockId id_of(const std::string& name) { return LockId(name + std::string(LockId::length - name.size(), '_')); }
inline std::string name_of(std::string_view id) { return std::string(id.substr(0, id.find('_'))); }
inline std::string name_of(const LockId& id) { return name_of(id.view()); }

struct Holder {
  std::string id;
  std::int64_t until = 0;
  std::uint64_t fence = 0;
};

struct Entry {
  std::string id;
  std::int64_t place = 0;
  std::int64_t reservation = 50;
  std::int64_t seen = -5000;
};

struct Turn {
  std::string id;
  std::int64_t place = 0;
  std::int64_t until = 0;
};

struct View {
  std::optional<Holder> holder{};
  std::uint64_t counter = 0;
  std::vector<Turn> turns{};
  std::vector<Entry> queue{};
};

struct Outcome {
  Json reply;
  std::string woken{};
};

// What a store has. Cases that need something else are left out.
using Features = std::set<std::string>;
inline const Features all_features{"queue",
                                   "seen",
                                   "reservation",
                                   "any reservation",
                                   "rows of turns",
                                   "several turns",
                                   "reservation apart from the place"};

class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  [[nodiscard]] virtual Features features() const { return all_features; }
  // Replaces everything that is stored for the key.
  virtual void write(const View& view) = 0;
  // The event is as in the file.
  virtual Outcome step(const std::string& name, const Json& arguments) = 0;
  virtual View read() = 0;
};

// The key of all cases, and the arguments of an event.
inline const Key key = "rules";
inline LockId id_in(const Json& arguments) { return id_of(arguments.at("id")); }
inline AcquireRequest acquire_request(const Json& arguments) {
  return {.key = key, .lock_id = id_in(arguments), .ttl = milliseconds(arguments.at("ttl"))};
}
inline core::WaiterRequest waiter_request(const Json& arguments) {
  core::WaiterRequest request{id_in(arguments), milliseconds(arguments.at("reservation"))};
  if (arguments.contains("place")) request.place = place_at(arguments.at("place"));
  return request;
}

// Replies in the form of the file.
inline Json reply_of(const AcquireReply& reply) {
  if (const auto* contended = std::get_if<Contended>(&reply)) {
    return {{"contended", {{"free_in", contended->free_in.count()}}}};
  }
  const auto& granted = std::get<Granted>(reply);
  return {{"granted",
           {{"fence", granted.fence.value()},
            {"until", relative(granted.expires_at)},
            {"remaining", granted.remaining.count()}}}};
}
inline Json reply_of(Missing missing) { return {{"missing", missing == Missing::expired ? "expired" : "not found"}}; }
inline Json reply_of(const ReleaseReply& reply) {
  const auto* missing = std::get_if<Missing>(&reply);
  return missing != nullptr ? reply_of(*missing) : Json{{"released", Json::object()}};
}
inline Json reply_of(const ExtendReply& reply) {
  if (const auto* missing = std::get_if<Missing>(&reply)) return reply_of(*missing);
  const auto& extended = std::get<Extended>(reply);
  return {{"extended", {{"until", relative(extended.expires_at)}, {"remaining", extended.remaining.count()}}}};
}
inline Json reply_of(const core::WaiterReply& reply) {
  const auto place = relative_place(reply.place);
  if (!reply.free_in) return {{"try", {{"place", place}}}};
  return {{"wait", {{"free_in", reply.free_in->count()}, {"place", place}, {"first", reply.is_first}}}};
}
inline Json broken_reply(bool broken) { return {{"broken", broken}}; }
inline const Json left_reply{{"left", Json::object()}};
inline const Json counter_at_end_reply{{"refused", "counter at its end"}};

// The functions of core/key_rules.hpp on a view in memory. The other stores are compared with it.
class Machine : public Store {
 public:
  void write(const View& view) override { view_ = view; }
  View read() override { return view_; }

  Outcome step(const std::string& name, const Json& arguments) override {
    const auto id = arguments.contains("id") ? std::optional(id_in(arguments)) : std::nullopt;
    std::optional<LockRecord> holder;
    if (view_.holder) {
      holder = LockRecord{.key = key,
                          .lock_id = id_of(view_.holder->id),
                          .expires_at = time_at(view_.holder->until),
                          .acquired_at = now,
                          .fence = Fence(view_.holder->fence)};
    }
    std::vector<core::Turn> turns;
    std::vector<core::QueueEntry> queue;
    std::int64_t last_place = 0;
    for (const auto& turn : view_.turns) {
      turns.push_back({{id_of(turn.id), place_at(turn.place)}, time_at(turn.until)});
      last_place = std::max(last_place, turns.back().entry.place);
    }
    for (const auto& entry : view_.queue) {
      queue.push_back({id_of(entry.id), place_at(entry.place), milliseconds(entry.reservation), time_at(entry.seen)});
      last_place = std::max(last_place, queue.back().place);
    }
    const auto own = std::ranges::find_if(queue, [&](const auto& entry) { return entry.waiter == id; });
    const core::KeyView seen{.now = now,
                             .holder = holder ? &*holder : nullptr,
                             .counter = view_.counter,
                             .turns = turns,
                             .front = queue,
                             .own = own != queue.end() ? &*own : nullptr,
                             .last_place = last_place};
    if (name == "acquire") {
      try {
        return apply(core::acquire(seen, acquire_request(arguments), 0), id);
      } catch (const LockError&) {
        return {counter_at_end_reply};
      }
    }
    if (name == "release") return apply(core::release(seen, *id), id);
    if (name == "extend") return apply(core::extend(seen, *id, milliseconds(arguments.at("ttl"))), id);
    if (name == "join") return apply(core::join(seen, waiter_request(arguments)), id);
    if (name == "look") return apply(core::look(seen, waiter_request(arguments)), id);
    if (name == "leave") return {left_reply, apply(core::leave(seen, *id), id)};
    const auto broken = core::break_lock(seen, Fence(arguments.at("fence").get<std::uint64_t>()));
    return {broken_reply(broken.reply), apply(broken.changes, id)};
  }

 private:
  template <typename Reply>
  Outcome apply(const core::Step<Reply>& step, const std::optional<LockId>& id) {
    return {reply_of(step.reply), apply(step.changes, id)};
  }

  // Returns the name of the waiter to wake.
  std::string apply(const core::KeyChanges& changes, const std::optional<LockId>& id) {
    const auto own = id ? name_of(*id) : "";
    const auto is = [](const std::string& name) { return [name](const auto& item) { return item.id == name; }; };
    auto& [holder, counter, turns, queue] = view_;
    if (changes.put_holder) {
      counter = changes.put_holder->fence.value();
      holder = Holder{name_of(changes.put_holder->lock_id), relative(changes.put_holder->expires_at), counter};
    }
    if (changes.remove_holder) holder.reset();
    if (changes.set_expiry) holder->until = relative(*changes.set_expiry);
    if (changes.clear_turns) turns.clear();
    if (changes.remove_own) {
      std::erase_if(queue, is(own));
      std::erase_if(turns, is(own));
    }
    if (changes.doubt) {
      std::size_t removed = 0;
      std::erase_if(queue, [&](const Entry& entry) { return entry.id != own && removed++ < core::max_doubted; });
    }
    for (const auto& waiter : changes.remove) std::erase_if(queue, is(name_of(waiter)));
    if (changes.put_entry) {
      const auto& [waiter, place, reservation, seen] = *changes.put_entry;
      std::erase_if(queue, is(name_of(waiter)));
      queue.push_back({name_of(waiter), relative_place(place), reservation.count(), relative(*seen)});
      std::ranges::sort(queue, {}, &Entry::place);
    }
    if (changes.put_turn) {
      const auto& entry = changes.put_turn->entry;
      std::erase_if(queue, is(name_of(entry.waiter)));
      turns.push_back({name_of(entry.waiter), relative_place(entry.place), relative(changes.put_turn->until)});
    }
    return changes.wake ? name_of(*changes.wake) : "";
  }

  View view_;
};

// ---------------------------------------------------------------------------------------------------------------------

inline View view_of(const Json& json) {
  View view;
  if (!json.at("holder").is_null()) {
    const auto& holder = json.at("holder");
    view.holder = Holder{holder.at("id"), holder.at("until"), holder.at("fence")};
  }
  view.counter = json.at("counter");
  for (const auto& turn : json.at("turns")) view.turns.push_back({turn.at("id"), turn.at("place"), turn.at("until")});
  for (const auto& entry : json.at("queue")) {
    if (!entry.contains("crowd")) {
      view.queue.push_back({entry.at("id"), entry.at("place"), entry.at("reservation"), entry.at("seen")});
      continue;
    }
    for (int i = 0; i < entry.at("crowd"); ++i) {
      view.queue.push_back({.id = "crowd" + std::to_string(i),
                            .place = entry.at("place").get<std::int64_t>() + i,
                            .seen = entry.value("seen", std::int64_t{-5000})});
    }
  }
  return view;
}

// Without what a store does not have.
inline Json json_of(const View& view, const Features& has) {
  Json json{{"counter", view.counter}, {"turns", Json::array()}, {"queue", Json::array()}, {"holder", nullptr}};
  if (view.holder) {
    json["holder"] = {{"id", view.holder->id}, {"until", view.holder->until}, {"fence", view.holder->fence}};
  }
  for (const auto& turn : view.turns) {
    json["turns"].push_back({{"id", turn.id}, {"place", turn.place}, {"until", turn.until}});
  }
  for (const auto& entry : view.queue) {
    Json shown{{"id", entry.id}, {"place", entry.place}};
    if (has.contains("reservation")) shown["reservation"] = entry.reservation;
    if (has.contains("seen") && !has.contains("subscriptions")) shown["seen"] = entry.seen;
    json["queue"].push_back(shown);
  }
  return json;
}

inline void expect_step(Store& store, const View& view, const std::string& event, const Json& arguments,
                        const Outcome& expected, const View& after) {
  const auto has = store.features();
  SCOPED_TRACE(event + " " + arguments.dump() + " on " + json_of(view, all_features).dump());
  store.write(view);
  const auto outcome = store.step(event, arguments);
  EXPECT_EQ(outcome.reply.dump(), expected.reply.dump());
  EXPECT_EQ(outcome.woken, expected.woken);
  EXPECT_EQ(json_of(store.read(), has).dump(), json_of(after, has).dump());
}

// Runs every case that the store can have.
inline void run_cases(Store& store) {
  const auto has = store.features();
  std::map<std::string, int> left_out;
  std::size_t run = 0;
  const auto vectors = load_vectors("key_rules");
  for (const auto& entry : vectors.at("cases")) {
    SCOPED_TRACE(entry.at("name").get<std::string>());
    bool can_run = true;
    for (const std::string needed : entry.value("needs", Json::array())) {
      if (has.contains(needed)) continue;
      if (std::exchange(can_run, false)) ++left_out[needed];
    }
    if (!can_run) continue;
    ++run;
    const auto view = view_of(entry.at("view"));
    const auto event = entry.at("event").begin();
    const auto after = entry.at("after").is_string() ? view : view_of(entry.at("after"));
    expect_step(store, view, event.key(), event.value(), {entry.at("reply"), entry.value("wake", "")}, after);
  }
  EXPECT_GT(run, 10U);
  for (const auto& [need, count] : left_out) {
    std::printf("%d cases were left out, because this store has no %s\n", count, need.c_str());
  }
}

// Makes random steps on random views, and compares the store with the functions.
inline void run_random_steps(Store& store, unsigned seed, int steps) {
  const auto has = store.features();
  std::minstd_rand random(seed);
  const auto below = [&](std::size_t limit) { return random() % limit; };
  const auto one_of = [&](std::initializer_list<std::int64_t> values) {
    return *(values.begin() + below(values.size()));
  };
  const auto any_reservation = [&] { return has.contains("reservation") ? one_of({50, 100, 250}) : 50; };
  const std::vector<std::string> names{"A", "B", "C", "D", "E"};
  for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
    View view{.counter = 7};
    if (below(2) == 0) view.holder = Holder{names[below(5)], one_of({-5000, -1000, -999, -1, 1, 9000, 60000}), 7};
    std::vector<std::string> waiters = names;
    std::ranges::shuffle(waiters, random);
    auto place = -10 - static_cast<std::int64_t>(below(20));
    if (below(2) == 0) {
      view.turns.push_back({waiters.back(), place++, one_of({-40, -1, 0, 1, 40, 300, 301, 5000})});
      waiters.pop_back();
    }
    for (auto count = below(4); count > 0; --count) {
      const bool dead = has.contains("seen") && below(4) == 0;
      view.queue.push_back({waiters.back(), place, any_reservation(),
                            dead ? one_of({-30001, 30001, -59000}) : one_of({-30000, -10001, -10000, -9})});
      place += 1 + static_cast<std::int64_t>(below(3));
      waiters.pop_back();
    }
    const auto& id = names[below(5)];
    const auto found = std::ranges::find(view.queue, id, &Entry::id);
    const auto reservation = found != view.queue.end() ? found->reservation : any_reservation();
    Json arguments{{"id", id}};
    std::string event;
    switch (below(has.contains("queue") ? 7 : 4)) {
      case 0:
        event = "acquire";
        arguments["ttl"] = 30000;
        break;
      case 1:
        event = "release";
        break;
      case 2:
        event = "extend";
        arguments["ttl"] = 20000;
        break;
      case 3:
        event = "break";
        arguments = {{"fence", 6 + below(2)}};
        break;
      case 4:
        event = "join";
        arguments["reservation"] = reservation;
        if (below(2) == 0) arguments["place"] = found != view.queue.end() ? found->place : place + 3;
        break;
      case 5:
        event = "leave";
        break;
      default:
        event = "look";
        arguments["reservation"] = reservation;
        arguments["place"] = found != view.queue.end() ? found->place : place + 3;
        if (!view.turns.empty() && view.turns[0].id == id) arguments["place"] = view.turns[0].place;
    }
    if (!has.contains("queue")) {
      view.turns.clear();
      view.queue.clear();
    }
    Machine machine;
    machine.write(view);
    const auto expected = machine.step(event, arguments);
    expect_step(store, view, event, arguments, expected, machine.read());
  }
}

}  // namespace syncguard::testing::key_rules
