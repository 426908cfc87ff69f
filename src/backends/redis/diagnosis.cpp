#include "backends/redis/diagnosis.hpp"

#include "backends/redis/discovery.hpp"
#include "backends/redis/handshake.hpp"
#include "backends/redis/protocol.hpp"
#include "backends/redis/server_address.hpp"
#include "core/expiry.hpp"
#include "core/findings.hpp"
#include "os/clocks.hpp"

#include <syncguard/error.hpp>

#include <asio/this_coro.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace syncguard::redis {
namespace {

using core::failure;
using core::fine;
using core::warning;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The reply to CONFIG GET is a name and its value. nullopt if this user may not run it.
std::optional<std::string> setting(const Reply& reply) {
  if (reply.kind != Reply::Kind::array || reply.elements.size() != 2) return std::nullopt;
  return reply.elements[1].text;
}

Timestamp time_of(const Reply& reply) {
  std::int64_t seconds = 0;
  std::int64_t microseconds = 0;
  const auto number = [&](std::size_t position, std::int64_t& place, std::int64_t maximum) {
    if (reply.elements.size() != 2) return false;
    const auto& text = reply.elements[position].text;
    const auto error = std::from_chars(text.data(), text.data() + text.size(), place).ec;
    return error == std::errc() && place >= 0 && place <= maximum;
  };
  constexpr std::int64_t end_of_year_9999 = 253'402'300'799;
  if (!number(0, seconds, end_of_year_9999) || !number(1, microseconds, 999'999)) {
    throw LockError(ErrorCode::internal, "unexpected reply from Redis to TIME");
  }
  return Timestamp(milliseconds(seconds * 1000 + microseconds / 1000));
}

Finding eviction(const Info& info) {
  const std::string advice = "set maxmemory-policy noeviction and provide enough memory";
  const auto policy = info.value("maxmemory_policy");
  switch (info.eviction()) {
    case Info::Eviction::off:
      return fine("eviction", info.value("maxmemory") == "0" ? "off: there is no maxmemory"
                                                             : "off: maxmemory-policy is noeviction");
    case Info::Eviction::unknown:
      return warning("eviction", "cannot read maxmemory and its policy", "make sure that it is off: " + advice);
    case Info::Eviction::on:
      break;
  }
  return failure("eviction",
                 "with " + policy +
                     (policy.starts_with("volatile-") ? " a lock can be taken from its holder when memory is full"
                                                      : " locks and fence counters can be lost when memory is full"),
                 advice);
}

Finding persistence(const Info& info, const std::optional<std::string>& fsync, const std::optional<std::string>& save) {
  const std::string advice = "set appendonly yes and appendfsync always";
  if (info.value("aof_enabled") == "1") {
    if (!fsync) {
      return warning("persistence", "an append-only file; this user cannot read appendfsync",
                     "make sure that appendfsync is always, and let this user run config|get");
    }
    if (*fsync == "always") return fine("persistence", "an append-only file, synced on every write");
    return warning("persistence",
                   "with appendfsync " + *fsync + " a crash can lose the newest locks and fence counters", advice);
  }
  if (!save) {
    return warning("persistence", "no append-only file: a crash can lose locks and fence counters", advice);
  }
  return warning("persistence",
                 save->empty() ? "none: locks and fence counters are lost when the server restarts"
                               : "snapshots only: a crash loses the locks and fence counters since the last snapshot",
                 advice);
}

// A master that was cut off from its replicas keeps granting locks while the promoted replica grants the same ones.
Finding min_replicas_to_write(const Info& info) {
  const std::string check = "min-replicas-to-write";
  if (!info.value("min_slaves_good_slaves").empty()) {
    return fine(check, "set: a master that is cut off from its replicas stops granting locks");
  }
  return warning(check, "not set: a master that is cut off from its replicas keeps granting locks",
                 "set min-replicas-to-write 1 and min-replicas-max-lag 10 on all servers");
}

// The replies of the Sentinels, each asked once.
struct SentinelOpinions {
  int asked = 0;
  int in_tilt = 0;
  std::map<std::string, int> masters{};
  std::set<std::string> ids{};
  std::string unreachable{};
  std::string without_quorum{};
};

std::string name_of(const Address& address) { return address.host + ":" + std::to_string(address.port); }

void append(std::string& list, const std::string& item) { list += (list.empty() ? "" : ", ") + item; }

// Returns the other Sentinels that it knows.
asio::awaitable<std::vector<Address>> ask_opinion(const Session& session, Address address, SentinelOpinions& opinions,
                                                  CallLimits limits) {
  const ScopedConnection sentinel(session.connect_to_sentinel(address));
  const auto& [master, username, password, timeout] = *session.options().sentinel;
  const CallLimits bounded{limits.stop, std::min(limits.deadline, steady_clock::now() + timeout)};
  std::string ask_id = format_command({"SENTINEL", "MYID"});
  const auto id = co_await sentinel->call(std::move(ask_id), bounded);
  // One that is known by two addresses.
  if (!id.reply.is_error() && !opinions.ids.insert(id.reply.text).second) co_return std::vector<Address>();
  std::string ask_master = format_command({"SENTINEL", "GET-MASTER-ADDR-BY-NAME", master});
  const auto named = co_await sentinel->call(std::move(ask_master), bounded);
  const auto named_address = master_of(named.reply);
  std::string ask_quorum = format_command({"SENTINEL", "CKQUORUM", master});
  const auto quorum = co_await sentinel->call(std::move(ask_quorum), bounded);
  std::string ask_info = format_command({"INFO", "sentinel"});
  const auto info = co_await sentinel->call(std::move(ask_info), bounded);
  std::string ask_others = format_command({"SENTINEL", "SENTINELS", master});
  const auto others = co_await sentinel->call(std::move(ask_others), bounded);
  ++opinions.masters[name_of(named_address)];
  if (quorum.reply.is_error()) append(opinions.without_quorum, name_of(address) + " (" + quorum.reply.text + ")");
  if (Info(info.reply.text).value("sentinel_tilt") == "1") ++opinions.in_tilt;
  co_return sentinels_of(others.reply);
}

Finding agreement(const SentinelOpinions& opinions) {
  const std::string check = "Sentinels";
  if (opinions.masters.size() > 1) {
    std::string masters;
    for (const auto& [master, count] : opinions.masters) append(masters, master + " (" + std::to_string(count) + ")");
    return failure(check, "name different masters: " + masters,
                   "wait until a failover has ended; then compare SENTINEL MASTER on each of them");
  }
  if (!opinions.unreachable.empty()) {
    return warning(check, "not all answered: " + opinions.unreachable,
                   "repair them, or remove them with SENTINEL RESET");
  }
  if (opinions.in_tilt > 0) {
    return warning(check, std::to_string(opinions.in_tilt) + " in TILT mode: until it ends, they do not fail over",
                   "check the load and the clocks of their hosts");
  }
  constexpr int enough = 3;
  const auto count = std::to_string(opinions.asked);
  if (opinions.asked < enough) {
    return warning(check, "only " + count + ": no failover if too many of their hosts are lost",
                   "run at least three, on different hosts");
  }
  return fine(check, "all " + count + " name the same master");
}

Finding quorum(const SentinelOpinions& opinions) {
  const std::string check = "Sentinel quorum";
  if (opinions.without_quorum.empty()) return fine(check, "can be reached: a failover is possible");
  return failure(check, "cannot be reached: " + opinions.without_quorum,
                 "start the missing Sentinels, or correct the quorum in their configuration");
}

asio::awaitable<void> examine_sentinels(const Session& session, std::vector<Finding>& findings, CallLimits limits) {
  auto addresses = addresses_of(session.options());
  constexpr std::size_t most = 32;
  SentinelOpinions opinions;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const auto address = addresses[i];
    try {
      const auto others = co_await ask_opinion(session, address, opinions, limits);
      for (const auto& other : others) {
        const bool is_new = std::ranges::find(addresses, other) == addresses.end();
        if (is_new && addresses.size() < most) addresses.push_back(other);
      }
    } catch (const LockError& error) {
      if (error.code() == ErrorCode::aborted) throw;
      append(opinions.unreachable, name_of(address) + " (" + error.what() + ")");
    }
  }
  opinions.asked = static_cast<int>(opinions.ids.size());
  findings.push_back(agreement(opinions));
  findings.push_back(quorum(opinions));
}

Finding keyspace_events(const std::optional<std::string>& events) {
  const std::string check = "keyspace events";
  if (!events)
    return fine(check,
                "cannot read the setting; without them, a release by another library is noticed when waiters look");
  const auto has = [&](char c) { return events->find(c) != std::string::npos; };
  if (has('K') && (has('A') || (has('g') && has('$') && has('x')))) return fine(check, "on");
  return fine(check, "off: a release by another library is noticed when waiters look");
}

// The names of the commands, and the error of the first.
std::optional<Finding> refusal(const Reply& probed) {
  std::string commands;
  bool channel_only = true;
  for (std::size_t i = 0; i + 1 < probed.elements.size(); i += 2) {
    append(commands, probed.elements[i].text);
    channel_only = channel_only && probed.elements[i].text == "PUBLISH";
  }
  if (commands.empty()) return std::nullopt;
  const std::string found = "fails: " + commands + " (" + probed.elements[1].text + ")";
  if (channel_only) {
    return warning("channels", found,
                   "let this user publish to the channels in docs/redis.md; until then, waiting polls");
  }
  return failure("authorized", found, "let this user run these on the keys of the prefix; docs/redis.md has the list");
}

asio::awaitable<Reply> ask(Session& session, const LockId& id, const CallLimits& limits, std::string request) {
  auto answer = co_await session.connection_for(id).call(std::move(request), limits);
  co_return std::move(answer.reply);
}

// From lines such as slave0:ip=127.0.0.1,port=6380,state=online,offset=14,lag=0. The first ones of many.
std::vector<Address> replicas_of(const Info& info) {
  constexpr int most = 8;
  std::vector<Address> replicas;
  for (int i = 0; i < most; ++i) {
    const auto line = "," + info.value("slave" + std::to_string(i)) + ",";
    const auto field = [&line](const std::string& name) {
      const auto at = line.find("," + name + "=");
      if (at == std::string::npos) return std::string();
      const auto begin = at + name.size() + 2;
      return line.substr(begin, line.find(',', begin) - begin);
    };
    if (const auto replica = address_of(field("ip"), field("port"))) replicas.push_back(*replica);
  }
  return replicas;
}

// How far this host's clock is ahead of the server's, and how long the server took to answer.
struct Clocks {
  milliseconds skew;
  std::chrono::nanoseconds took;
};

asio::awaitable<Clocks> compare_clocks(Connection& connection, CallLimits limits) {
  std::string request = format_command({"TIME"});
  const auto sent_at = steady_clock::now();
  const auto answer = co_await connection.call(std::move(request), limits);
  const auto took = steady_clock::now() - sent_at;
  const auto host_time = os::system_now();
  if (answer.reply.is_error()) throw LockError(ErrorCode::auth_failed, "TIME is rejected: " + answer.reply.text);
  co_return Clocks{core::clock_skew(host_time, std::chrono::ceil<milliseconds>(took), time_of(answer.reply)), took};
}

// Whether enough replicas confirm earlier writes.
asio::awaitable<Finding> confirming_replicas(Session& session, const LockId& id, const CallLimits& limits) {
  const std::string check = "min_replicas";
  const auto& options = session.options();
  auto& connection = session.granting_connection_for(id);
  // WAIT counts replicas that have all writes before the last request on its connection.
  co_await compare_clocks(connection, limits);
  std::string request = wait_request(options);
  const auto answer = co_await connection.call(std::move(request), limits);
  if (answer.reply.is_error()) {
    co_return failure(check, "WAIT is rejected: " + answer.reply.text,
                      "let this user run wait, or remove min_replicas");
  }
  const auto confirmed = std::to_string(answer.reply.integer) + " of " + std::to_string(options.min_replicas) +
                         " replicas confirm within replica_timeout";
  if (std::cmp_greater_equal(answer.reply.integer, options.min_replicas)) co_return fine(check, confirmed);
  co_return failure(check, "only " + confirmed + ": no lock can be acquired or extended",
                    "start the missing replicas, or lower min_replicas");
}

asio::awaitable<std::vector<ReplicaClock>> read_clocks(const Session& session, std::vector<Address> replicas,
                                                       milliseconds skew_of_master, CallLimits limits) {
  constexpr std::chrono::seconds timeout{1};
  std::vector<ReplicaClock> clocks;
  for (const auto& address : replicas) {
    ReplicaClock clock{.name = name_of(address)};
    const ScopedConnection replica(session.connect_to(address.host, address.port));
    const CallLimits bounded{limits.stop, std::min(limits.deadline, steady_clock::now() + timeout)};
    try {
      // The first request includes connecting, which hides a skew.
      (void)co_await compare_clocks(*replica, bounded);
      const auto compared = co_await compare_clocks(*replica, bounded);
      clock.ahead = skew_of_master - compared.skew;
    } catch (const LockError& error) {
      if (error.code() == ErrorCode::aborted) throw;
      clock.error = error.what();
    }
    clocks.push_back(std::move(clock));
  }
  co_return clocks;
}

// Not all of very many: this is a check, and must not keep the server busy.
asio::awaitable<Finding> examine_counters(Session& session, const LockId& id, Timestamp server_now, CallLimits limits) {
  constexpr int max_steps = 200;
  constexpr milliseconds max_time{500};
  const auto start = steady_clock::now();
  const auto end = start + std::min<steady_clock::duration>(max_time, (limits.deadline - start) / 2);
  const auto pattern = session.names().fence_pattern();
  std::uint64_t highest = 0;
  std::string cursor = "0";
  for (int step = 0;; ++step) {
    const Arguments arguments({session.names().index(id)}, {cursor, pattern});
    const Reply reply = co_await session.run(session.connection_for(id), scripts().highest_counter, arguments, limits);
    if (reply.elements.size() != 2 || reply.elements[1].kind != Reply::Kind::integer) {
      co_return fine("fence counters", "not examined, because this user may not run SCAN");
    }
    highest = std::max(highest, static_cast<std::uint64_t>(std::max<std::int64_t>(reply.elements[1].integer, 0)));
    cursor = reply.elements[0].text;
    if (cursor == "0") co_return core::fence_counters(highest, server_now);
    if (step == max_steps || steady_clock::now() > end) {
      co_return core::fence_counters(highest, server_now, core::Examined::some);
    }
  }
}

// To the channels that a waiter has, and unsubscribes again.
asio::awaitable<void> subscribe(Session& session, const Key& key, const LockId& id, const CallLimits& limits) {
  auto& wake_listener = session.wake_listener();
  if (const auto address = session.connection_for(id).address()) wake_listener.follow(*address);
  // Also if it fails: it would be subscribed with every new connection.
  const struct Unsubscribe {
    WakeListener& wake_listener;
    const LockId& id;
    const Key& key;
    ~Unsubscribe() { wake_listener.remove(id, key); }
  } unsubscribe{wake_listener, id, key};
  wake_listener.add(id, key, [] {});
  co_await wake_listener.subscribe(id, session.names().lock(key), limits);
}

}  // namespace

Finding replication(const Info& info, Failover failover) {
  if (info.value("role") != "master") {
    return failure("replication", "this is a replica, which is read-only", "connect to the master");
  }
  const auto replicas = info.value("connected_slaves");
  if (replicas == "0" && failover == Failover::by_sentinels) {
    return warning("replication", "a master without replicas: the Sentinels have no server to fail over to",
                   "add a replica on another host");
  }
  if (replicas == "0") return fine("replication", "a master without replicas");
  return warning("replication",
                 "a master with " + replicas + " replicas: a failover can lose the newest locks and fence counters",
                 "check fences in the store that the lock protects; min-replicas-to-write reduces the risk");
}

Finding clocks_of_replicas(const std::vector<ReplicaClock>& clocks) {
  const std::string check = "clocks of replicas";
  std::string off;
  std::string consequences;
  std::string unreachable;
  milliseconds most{};
  milliseconds least{};
  for (const auto& [name, ahead, error] : clocks) {
    if (!ahead) {
      append(unreachable, name + " (" + error + ")");
      continue;
    }
    most = std::max(most, *ahead);
    least = std::min(least, *ahead);
    if (std::chrono::abs(*ahead) >= core::skew_warning) {
      append(off, name + " is " + std::to_string(std::chrono::abs(*ahead).count()) + " ms " +
                      (*ahead > ahead->zero() ? "ahead of" : "behind") + " the master's clock");
    }
  }
  if (-least >= core::skew_warning) append(consequences, "to one that is behind, fences can repeat for that long");
  if (most >= core::skew_warning) append(consequences, "to one that is ahead, locks expire early by that much");
  if (!off.empty()) {
    return warning(check, off + ": after a failover " + consequences, "synchronize the clocks of all servers (NTP)");
  }
  if (!unreachable.empty()) {
    return warning(check, "not compared, because this host cannot reach " + unreachable,
                   "compare them where they can be reached: redis-cli TIME");
  }
  return fine(check, "within " + std::to_string(std::max(most, -least).count()) + " ms of the master's");
}

asio::awaitable<std::vector<Finding>> diagnose(Session& session, CallLimits limits) {
  // Names that no client uses.
  const auto id = LockId::generate();
  const Key key(id.str());
  const auto& names = session.names();
  const Arguments probing({names.index(id), names.queue(key), names.turn(key)}, {names.wake_channel(id)});
  const auto source = session.options().fences;
  std::vector<Finding> findings;
  std::vector<Address> replicas;
  milliseconds skew = milliseconds::max();
  try {
    core::LatencyCheck latency_check;
    for (int i = 0; i < core::LatencyCheck::requests; ++i) {
      const auto clocks = co_await compare_clocks(session.connection_for(id), limits);
      latency_check.add(clocks.took, clocks.skew);
      if (std::chrono::abs(clocks.skew) < std::chrono::abs(skew)) skew = clocks.skew;
    }
    latency_check.report(findings);

    std::string ask_info = format_command({"INFO"});
    const Reply info_reply = co_await ask(session, id, limits, std::move(ask_info));
    std::string ask_fsync = format_command({"CONFIG", "GET", "appendfsync"});
    const Reply fsync = co_await ask(session, id, limits, std::move(ask_fsync));
    std::string ask_save = format_command({"CONFIG", "GET", "save"});
    const Reply save = co_await ask(session, id, limits, std::move(ask_save));
    std::string ask_events = format_command({"CONFIG", "GET", "notify-keyspace-events"});
    const Reply events = co_await ask(session, id, limits, std::move(ask_events));
    bool is_replica = false;
    if (info_reply.is_error()) {
      findings.push_back(warning("server", "INFO is rejected: eviction, persistence and replication were not checked",
                                 "let this user run info, at least for this check"));
    } else {
      const Info info(info_reply.text);
      is_replica = info.value("role") != "master";
      findings.push_back(fine("server", "Redis " + info.value("redis_version")));
      const bool has_sentinels = session.options().sentinel.has_value();
      findings.push_back(replication(info, has_sentinels ? Failover::by_sentinels : Failover::by_others));
      replicas = replicas_of(info);
      if (has_sentinels) findings.push_back(min_replicas_to_write(info));
      findings.push_back(eviction(info));
      findings.push_back(persistence(info, setting(fsync), setting(save)));
      // One without a hash tag in its prefix would not have been let in.
      findings.push_back(fine("cluster", info.value("cluster_enabled") == "1" ? "yes; the prefix has a hash tag"
                                                                              : "no; the prefix needs no hash tag"));
    }
    findings.push_back(keyspace_events(setting(events)));
    if (!is_replica) {
      const Reply probed = co_await session.run(session.connection_for(id), scripts().probe, probing, limits);
      findings.push_back(refusal(probed).value_or(fine("authorized", "for everything that locks need")));
      if (session.options().min_replicas > 0) {
        auto finding = co_await confirming_replicas(session, id, limits);
        findings.push_back(std::move(finding));
      }
      findings.push_back(core::fences(source, "a crash, a failover or FLUSHALL"));
      if (source == FenceSource::clock) {
        auto finding = co_await examine_counters(session, id, os::system_now() - skew, limits);
        findings.push_back(std::move(finding));
      }
    }
  } catch (const LockError& error) {
    findings.push_back(core::unreachable(error));
    co_return findings;
  }
  try {
    co_await subscribe(session, key, id, limits);
    findings.push_back(fine("subscribing", "possible: waiters are woken"));
  } catch (const LockError& error) {
    findings.push_back(
        core::no_wake_ups("subscribing", error, "let this user subscribe to the channels in docs/redis.md"));
  }
  if (session.options().sentinel) co_await examine_sentinels(session, findings, limits);
  if (!replicas.empty()) {
    const auto clocks = co_await read_clocks(session, std::move(replicas), skew, limits);
    findings.push_back(clocks_of_replicas(clocks));
  }
  co_return findings;
}

}  // namespace syncguard::redis
