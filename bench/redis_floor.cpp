// Blocking hiredis with the same scripts as the library.

#include "backends/redis/names.hpp"
#include "backends/redis/scripts.hpp"
#include "backends/url.hpp"
#include "bench.hpp"
#include "floor.hpp"
#include "held_keys.hpp"

#include <hiredis/hiredis.h>

#include <memory>
#include <stdexcept>

namespace syncguard::bench {
namespace {

class Connection {
 public:
  explicit Connection(const RedisOptions& options)
      : context_(options.unix_socket.empty() ? redisConnect(options.host.c_str(), options.port)
                                             : redisConnectUnix(options.unix_socket.c_str()),
                 redisFree) {
    if (options.tls) throw std::runtime_error("the hiredis floor does not support TLS: use a URL without it");
    if (!context_ || context_->err != 0) throw std::runtime_error("hiredis cannot connect");
    if (!options.username.empty()) {
      run({"AUTH", options.username, options.password});
    } else if (!options.password.empty()) {
      run({"AUTH", options.password});
    }
    if (options.database != 0) run({"SELECT", std::to_string(options.database)});
  }

  // Returns the reply if it is text.
  std::string run(const std::vector<std::string>& words) {
    std::vector<const char*> texts;
    std::vector<std::size_t> sizes;
    for (const auto& word : words) {
      texts.push_back(word.data());
      sizes.push_back(word.size());
    }
    const std::unique_ptr<redisReply, void (*)(void*)> reply(
        static_cast<redisReply*>(
            redisCommandArgv(context_.get(), static_cast<int>(words.size()), texts.data(), sizes.data())),
        freeReplyObject);
    if (!reply || reply->type == REDIS_REPLY_ERROR) throw std::runtime_error("hiredis was refused");
    return reply->type == REDIS_REPLY_STRING ? std::string(reply->str, static_cast<std::size_t>(reply->len)) : "";
  }

 private:
  const std::unique_ptr<redisContext, void (*)(redisContext*)> context_;
};

}  // namespace

Floor redis_floor(const std::string& text) {
  BackendUrl url(text);
  const auto options = redis::options_of(url);
  const redis::Names names(options.prefix);
  const auto make_caller = [options, names](const Key& key) -> std::function<void()> {
    const auto connection = std::make_shared<Connection>(options);
    const auto& scripts = redis::scripts();
    connection->run({"SCRIPT", "LOAD", scripts.acquire.text});
    connection->run({"SCRIPT", "LOAD", scripts.release.text});
    const auto lock = names.lock(key);
    return [=, &scripts] {
      const LockId id = LockId::generate();
      connection->run({"EVALSHA", scripts.acquire.hash, "4", lock, names.fence(lock), names.turn(key), names.index(id),
                       id.str(), "30000", "31000", '"' + key.str() + '"', "clock", R"(,"holder":"bench/1")"});
      connection->run({"EVALSHA", scripts.release.hash, "1", names.index(id), id.str(), names.queue_root(),
                       names.turn_root(), names.wake_root()});
    };
  };
  return {.name = "hiredis, blocking, the same scripts", .callers = {1, 32}, .make_caller = make_caller};
}

void measure_scripts(const Settings& settings, Report& report) {
  if (!settings.url.starts_with("redis")) return;
  BackendUrl url(settings.url);
  const auto options = redis::options_of(url);
  Connection connection(options);
  Locks locks = open(settings.url);
  constexpr std::size_t calls = 2000;
  std::vector<Lease> leases;
  const auto time_of_scripts = [&](const auto& send) {
    connection.run({"CONFIG", "RESETSTAT"});
    send();
    const auto stats = connection.run({"INFO", "commandstats"});
    const std::string field = "usec_per_call=";
    const auto script = stats.find("cmdstat_evalsha:");
    if (script == std::string::npos) throw std::runtime_error("Redis does not report the cost of scripts");
    return std::stod(stats.substr(stats.find(field, script) + field.size()));
  };
  const auto add = [&](const std::string& name, double time) {
    report.add({.group = "time of one script on the server", .name = name, .value = time, .unit = "us"});
  };
  // A busy server: its processor's caches stay warm. The median of several measurements, because other work on the
  // machine slows some of them down.
  HeldKeys held(locks, "script");
  std::vector<double> times;
  for (int i = 0; i < 11; ++i) {
    times.push_back(time_of_scripts([&] {
      for (std::size_t round = 0; round < calls / 100; ++round) {
        held.grow_to(256);
        held.release_all();
      }
    }));
  }
  add("acquire and release, 256 in flight", median(times));
  const auto measure_one_by_one = [&](const std::string& name, const auto& step) {
    add(name, time_of_scripts([&] {
          for (std::size_t i = 0; i < calls; ++i) step(i);
        }));
  };
  measure_one_by_one("acquire", [&](std::size_t i) { leases.push_back(locks.acquire(numbered("script", i))); });
  measure_one_by_one("acquire, contended", [&](std::size_t i) { (void)locks.try_acquire(numbered("script", i)); });
  measure_one_by_one("is_locked", [&](std::size_t i) { (void)locks.is_locked(numbered("script", i)); });
  measure_one_by_one("lookup", [&](std::size_t i) { (void)locks.lookup(leases[i].id()); });
  measure_one_by_one("extend", [&](std::size_t i) { (void)leases[i].extend(30s); });
  measure_one_by_one("release", [&](std::size_t i) { (void)leases[i].release(); });
}

}  // namespace syncguard::bench
