// The rules of a key in Lua follow src/core/key_rules.hpp.

#include "support/key_rules.hpp"

#include "backends/redis/scripts.hpp"
#include "scripts_at_time.hpp"
#include "servers/redis_server.hpp"

#include <syncguard/fence.hpp>

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>

#include <cstdlib>
#include <memory>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace key_rules;
using Words = std::vector<std::string>;

class Client {
 public:
  explicit Client(const RedisServer& server)
      : context_(redisConnectUnixWithTimeout(server.unix_socket().c_str(), timeout), redisFree) {
    if (!context_ || context_->err != 0) throw std::runtime_error("no connection to the test's Redis");
    redisSetTimeout(context_.get(), timeout);
  }

  void send(const Words& words) {
    std::vector<const char*> texts;
    std::vector<std::size_t> sizes;
    for (const auto& word : words) {
      texts.push_back(word.data());
      sizes.push_back(word.size());
    }
    redisAppendCommandArgv(context_.get(), static_cast<int>(words.size()), texts.data(), sizes.data());
  }
  redis::Reply receive() {
    void* reply = nullptr;
    if (redisGetReply(context_.get(), &reply) != REDIS_OK) throw std::runtime_error("the test's Redis does not answer");
    const std::unique_ptr<void, void (*)(void*)> owner(reply, freeReplyObject);
    return converted(*static_cast<const redisReply*>(reply));
  }
  redis::Reply call(const Words& words) {
    send(words);
    auto reply = receive();
    if (reply.is_error()) throw std::runtime_error(words.front() + ": " + reply.text);
    return reply;
  }
  void call_all(const std::vector<Words>& commands) {
    for (const auto& words : commands) send(words);
    for (const auto& words : commands) {
      if (const auto reply = receive(); reply.is_error()) throw std::runtime_error(words.front() + ": " + reply.text);
    }
  }

 private:
  static redis::Reply converted(const redisReply& reply) {
    redis::Reply result;
    switch (reply.type) {
      case REDIS_REPLY_NIL:
        result.kind = redis::Reply::Kind::nil;
        break;
      case REDIS_REPLY_INTEGER:
        result.kind = redis::Reply::Kind::integer;
        result.integer = reply.integer;
        break;
      case REDIS_REPLY_ARRAY:
        result.kind = redis::Reply::Kind::array;
        for (auto* const element : std::span(reply.element, reply.elements)) {
          result.elements.push_back(converted(*element));
        }
        break;
      default:
        result.kind = reply.type == REDIS_REPLY_ERROR ? redis::Reply::Kind::error : redis::Reply::Kind::text;
        result.text.assign(reply.str, reply.len);
    }
    return result;
  }

  static constexpr timeval timeout{.tv_sec = 20, .tv_usec = 0};
  std::unique_ptr<redisContext, void (*)(redisContext*)> context_;
};

// A place in Redis: 8 * the time of joining, + the requested reservation in steps of 50 ms.
std::int64_t encoded(std::int64_t place, std::int64_t reservation) { return place_at(place) * 8 + reservation / 50; }
std::int64_t decoded(std::int64_t place) { return relative_place(place / 8); }

// A waiter that counts is subscribed to its channel, as a live one is.
class RedisStore : public Store {
 public:
  [[nodiscard]] Features features() const override { return {"queue", "seen", "subscriptions", "reservation"}; }

  void write(const View& view) override {
    view_ = view;
    std::vector<Words> commands{{"FLUSHALL"}};
    // As if each had held the lock before.
    for (const std::string id : {"A", "B", "C", "D", "E"}) {
      commands.push_back({"SET", index_of(id_of(id)), lock, "PX", "100000"});
    }
    if (view.holder) {
      const auto document = Json{{"key", key.str()},
                                 {"lockId", id_of(view.holder->id).str()},
                                 {"fence", Fence(view.holder->fence).str()},
                                 {"acquiredAtMs", 1},
                                 {"expiresAtMs", place_at(view.holder->until)}};
      commands.push_back({"SET", lock, document.dump(), "PX", "100000"});
      commands.push_back({"SET", index_of(id_of(view.holder->id)), lock, "PX", "100000"});
    }
    if (view.counter > 0) commands.push_back({"SET", counter, std::to_string(view.counter)});
    for (const auto& turn : view.turns) commands.push_back(set_turn(turn, 50));
    Words add_entries{"ZADD", queue};
    Words subscribe{"SUBSCRIBE", "none"};
    for (const auto& [id, place, reservation, seen] : view.queue) {
      add_entries.insert(add_entries.end(), {std::to_string(encoded(place, reservation)), id_of(id).str()});
      if (core::counts({.waiter = id_of(id), .seen = time_at(seen)}, now)) subscribe.push_back(channel_of(id));
    }
    if (!view.queue.empty()) {
      commands.push_back(std::move(add_entries));
      commands.push_back({"PEXPIRE", queue, "1000000"});
    }
    client_.call_all(commands);
    subscriber_.send({"UNSUBSCRIBE"});
    subscriber_.send(subscribe);
    (void)messages();
  }

  Outcome step(const std::string& name, const Json& arguments) override {
    const auto id = arguments.contains("id") ? id_in(arguments).str() : "";
    const auto& scripts = redis::scripts();
    if (name == "join") set_reservation_of_turn(arguments);
    Outcome outcome;
    if (name == "acquire") {
      const auto ttl = arguments.at("ttl").get<std::int64_t>();
      const auto reply =
          run(scripts.acquire, {lock, counter, turn_name, index_of(LockId(id)), queue},
              {id, std::to_string(ttl), std::to_string(ttl + 1000), '"' + key.str() + '"', "counter", "", "", "waits"});
      try {
        outcome.reply = reply_of(redis::acquire_reply(reply));
      } catch (const LockError&) {
        outcome.reply = counter_at_end_reply;
      }
    } else if (name == "release") {
      const auto reply = run(scripts.release, {index_of(LockId(id))}, {id, queue_root, turn_root, wake_root});
      outcome.reply = reply_of(redis::release_reply(reply));
    } else if (name == "extend") {
      const auto ttl = arguments.at("ttl").get<std::int64_t>();
      const auto reply =
          run(scripts.extend, {index_of(LockId(id))}, {id, std::to_string(ttl), std::to_string(ttl + 1000)});
      outcome.reply = reply_of(redis::extend_reply(reply));
    } else if (name == "break") {
      const auto fence = Fence(arguments.at("fence").get<std::uint64_t>()).str();
      const auto reply = run(scripts.break_lock, {lock}, {fence, "syncguard:id:", queue_root, turn_root, wake_root});
      outcome.reply = broken_reply(redis::break_lock_reply(reply));
    } else if (name == "join") {
      const auto reservation = arguments.at("reservation").get<std::int64_t>();
      const auto place = arguments.contains("place") ? std::to_string(encoded(arguments.at("place"), reservation)) : "";
      const auto reply = run(scripts.join, {queue, turn_name, lock}, {id, std::to_string(reservation), place});
      outcome.reply = waiter_reply(redis::join_reply(reply).value().reply);
    } else if (name == "leave") {
      EXPECT_EQ(run(scripts.leave, {queue, turn_name, lock}, {id, wake_root}).integer, 1);
      outcome.reply = left_reply;
    } else {
      outcome.reply = look({arguments}).front();
    }
    for (const auto& woken : messages()) outcome.woken += woken;
    freed_ = outcome.woken.empty() && (outcome.reply.contains("released") || outcome.reply == broken_reply(true));
    return outcome;
  }

  // Several waiters look in one request.
  std::vector<Json> look(const std::vector<Json>& waiters) {
    Words keys;
    Words arguments;
    for (const auto& waiter : waiters) {
      keys.insert(keys.end(), {lock, turn_name, queue});
      const auto place = encoded(waiter.at("place"), waiter.at("reservation"));
      arguments.insert(arguments.end(), {id_in(waiter).str(), std::to_string(place)});
    }
    const auto reply = run(redis::scripts().look, keys, arguments);
    std::vector<Json> replies;
    for (std::size_t i = 0; i < waiters.size(); ++i) {
      auto found = redis::look_reply(reply, waiters.size())[i].reply;
      found.place = encoded(waiters[i].at("place"), waiters[i].at("reservation"));
      replies.push_back(waiter_reply(found));
    }
    return replies;
  }

  View read() override {
    View view;
    const auto values = client_.call({"MGET", lock, counter, turn_name}).elements;
    if (values[0].kind == redis::Reply::Kind::text) {
      const auto document = Json::parse(values[0].text);
      view.holder =
          Holder{name_of(document.at("lockId").get<std::string>()), relative_place(document.at("expiresAtMs")),
                 std::stoull(document.at("fence").get<std::string>())};
      EXPECT_GT(time_to_live(lock), 0);
    }
    if (values[1].kind == redis::Reply::Kind::text) view.counter = std::stoull(values[1].text);
    if (values[2].kind == redis::Reply::Kind::text) {
      std::istringstream words(values[2].text);
      std::string id;
      std::int64_t place = 0;
      std::int64_t until = 0;
      words >> id >> place >> until;
      const Turn turn{name_of(id), decoded(place), relative_place(until)};
      // A release that finds no live waiter leaves a lapsed turn where it is.
      const bool is_pending = turn.until > 0 && turn.until <= 300;
      if (is_pending || !freed_) view.turns.push_back(turn);
      EXPECT_GT(time_to_live(turn_name), 50'000);
    }
    const auto entries = client_.call({"ZRANGE", queue, "0", "-1", "WITHSCORES"}).elements;
    for (std::size_t i = 0; i < entries.size(); i += 2) {
      const auto place = std::strtoll(entries[i + 1].text.c_str(), nullptr, 10);
      view.queue.push_back({name_of(entries[i].text), decoded(place), place % 8 * 50});
    }
    EXPECT_TRUE(entries.empty() || time_to_live(queue) > 50'000);
    return view;
  }

 private:
  static std::string index_of(const LockId& id) { return "syncguard:id:" + id.str(); }
  static std::string channel_of(const std::string& name) { return wake_root + redis::sha1(id_of(name).view()); }
  static Words set_turn(const Turn& turn, std::int64_t reservation) {
    return {"SET", turn_name,
            id_of(turn.id).str() + ' ' + std::to_string(encoded(turn.place, reservation)) + ' ' +
                std::to_string(place_at(turn.until)),
            "PX", "60000"};
  }
  static Json waiter_reply(core::WaiterReply reply) {
    reply.place /= 8;
    return reply_of(reply);
  }

  // The place in a turn carries the reservation that the waiter requested, which a view does not show.
  void set_reservation_of_turn(const Json& arguments) {
    for (const auto& turn : view_.turns) {
      if (turn.id == arguments.at("id")) client_.call(set_turn(turn, arguments.at("reservation")));
    }
  }

  redis::Reply run(const redis::Script& script, const Words& keys, const Words& arguments) {
    const auto milliseconds_now = now.time_since_epoch().count();
    Words words{"EVAL", at_time(std::to_string(milliseconds_now / 1000), "0", script), std::to_string(keys.size())};
    words.insert(words.end(), keys.begin(), keys.end());
    words.insert(words.end(), arguments.begin(), arguments.end());
    return client_.call(words);
  }

  std::int64_t time_to_live(const std::string& name) { return client_.call({"PTTL", name}).integer; }

  // The names of the waiters that were woken since the last call.
  std::vector<std::string> messages() {
    std::vector<std::string> woken;
    subscriber_.send({"PING"});
    for (;;) {
      const auto message = subscriber_.receive();
      if (message.is_error()) throw std::runtime_error(message.text);
      if (message.elements.front().text == "pong") return woken;
      if (message.elements.front().text != "message") continue;
      for (const auto& entry : view_.queue) {
        if (channel_of(entry.id) == message.elements[1].text) woken.push_back(entry.id);
      }
    }
  }

  inline static const std::string lock = "syncguard:rules";
  inline static const std::string counter = "syncguard:fence:syncguard:rules";
  inline static const std::string queue_root = "syncguard-queue:";
  inline static const std::string turn_root = "syncguard-turn:";
  inline static const std::string wake_root = "syncguard-wake:";
  inline static const std::string queue = queue_root + key.str();
  inline static const std::string turn_name = turn_root + key.str();

  RedisServer server_;
  Client client_{server_};
  Client subscriber_{server_};
  View view_;
  bool freed_ = false;
};

TEST(RedisKeyRules, EveryCase) {
  RedisStore store;
  run_cases(store);
}

TEST(RedisKeyRules, RandomSteps) {
  RedisStore store;
  for (const unsigned seed : {1U, 2U, 3U}) run_random_steps(store, seed, 500);
}

// As if each had looked on its own, one after the other.
TEST(RedisKeyRules, WaitersThatLookTogether) {
  RedisStore store;
  Machine machine;
  const std::vector<std::optional<Holder>> holders{std::nullopt, Holder{"X", -1000, 7}, Holder{"X", 9000, 7},
                                                   Holder{"B", 9000, 7}};
  std::vector<std::vector<key_rules::Turn>> turns{{}};
  for (const std::string id : {"A", "B", "X"}) {
    for (const int until : {-1, 40, 301}) turns.push_back({{id, -20, until}});
  }
  const std::vector<std::vector<Entry>> queues{
      {}, {{"A", -10, 50}, {"B", -9, 100}}, {{"D", -11, 50}, {"B", -9, 100}}, {{"A", -10, 50}, {"D", -5, 50}}};
  std::vector<Json> waiters{{{"id", "A"}, {"place", -10}, {"reservation", 50}},
                            {{"id", "B"}, {"place", -9}, {"reservation", 100}},
                            {{"id", "C"}, {"place", -8}, {"reservation", 50}}};
  for (int orders = 0; orders < 3; ++orders) {
    std::rotate(waiters.begin(), waiters.begin() + 1, waiters.end());  // clang 14 has no ranges of these
    for (const auto& holder : holders) {
      for (const auto& turn : turns) {
        for (const auto& queue : queues) {
          View view{.holder = holder, .counter = 7, .turns = turn, .queue = queue};
          std::erase_if(view.queue, [&](const Entry& entry) { return !turn.empty() && entry.id == turn[0].id; });
          SCOPED_TRACE(json_of(view, all_features).dump() + " first " + waiters[0].dump());
          machine.write(view);
          store.write(view);
          auto arguments = waiters;
          for (auto& waiter : arguments) {
            if (!turn.empty() && waiter.at("id") == turn[0].id) waiter["place"] = turn[0].place;
            if (!turn.empty() && waiter.at("id") == turn[0].id) waiter["reservation"] = 50;
          }
          const auto replies = store.look(arguments);
          for (std::size_t i = 0; i < arguments.size(); ++i) {
            EXPECT_EQ(replies[i].dump(), machine.step("look", arguments[i]).reply.dump());
          }
          EXPECT_EQ(json_of(store.read(), store.features()).dump(), json_of(machine.read(), store.features()).dump());
        }
      }
    }
  }
}

}  // namespace
}  // namespace syncguard::testing
