#include "backends/redis/diagnosis.hpp"

#include "async/system_now.hpp"
#include "backends/redis/command.hpp"
#include "backends/redis/info.hpp"
#include "core/clock_skew.hpp"
#include "core/findings.hpp"

#include <syncguard/error.hpp>

#include <charconv>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

namespace syncguard::redis {
namespace {

using core::failure;
using core::fine;
using core::warning;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// CONFIG GET's reply is a name and its value. Nothing where this user may not ask.
std::optional<std::string> setting(const Reply& reply) {
  if (reply.kind != Reply::Kind::array || reply.elements.size() != 2) return std::nullopt;
  return reply.elements[1].text;
}

Timestamp time_of(const Reply& reply) {
  std::int64_t seconds = 0;
  std::int64_t microseconds = 0;
  const auto number = [&](std::size_t position, std::int64_t& place) {
    if (reply.elements.size() != 2) return false;
    const auto& text = reply.elements[position].text;
    return std::from_chars(text.data(), text.data() + text.size(), place).ec == std::errc();
  };
  if (!number(0, seconds) || !number(1, microseconds)) {
    throw LockError(ErrorCode::internal, "Redis answered something else than the time");
  }
  return Timestamp(milliseconds(seconds * 1000 + microseconds / 1000));
}

Finding eviction(const Info& info) {
  const std::string advice = "set maxmemory-policy noeviction, and give it enough memory";
  const auto policy = info.value("maxmemory_policy");
  switch (info.eviction()) {
    case Info::Eviction::off:
      return fine("eviction", info.value("maxmemory") == "0" ? "off: there is no maxmemory"
                                                             : "off: maxmemory-policy is noeviction");
    case Info::Eviction::unknown:
      return warning("eviction", "maxmemory and its policy could not be read", "make sure that it is off: " + advice);
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
      return warning("persistence", "an append-only file; how often it is synchronised may not be asked",
                     "make sure that appendfsync is always, and let this user run config|get");
    }
    if (*fsync == "always") return fine("persistence", "an append-only file, synchronised with every write");
    return warning("persistence", "with appendfsync " + *fsync + " a crash can lose the newest fences", advice);
  }
  if (!save) {
    return warning("persistence", "no append-only file: a crash loses fences, and they are given out again", advice);
  }
  return warning("persistence",
                 save->empty() ? "none: after a restart, fences begin anew"
                               : "snapshots alone: a crash loses the fences since the last one",
                 advice);
}

Finding replication(const Info& info) {
  if (info.value("role") != "master") {
    return failure("replication", "this is a replica, which cannot be written to", "connect to the master");
  }
  const auto replicas = info.value("connected_slaves");
  if (replicas == "0") return fine("replication", "a master without replicas");
  return warning("replication",
                 "a master with " + replicas + " replicas: a failover can lose the newest locks and fences",
                 "let what the lock protects refuse old fences; min-replicas-to-write narrows the gap");
}

Finding keyspace_events(const std::optional<std::string>& events) {
  const std::string check = "keyspace events";
  if (!events) return fine(check, "may not be asked; without them, a release by another library is noticed by polling");
  const auto has = [&](char c) { return events->find(c) != std::string::npos; };
  if (has('K') && (has('A') || (has('g') && has('$') && has('x')))) return fine(check, "on");
  return fine(check, "off: a release by another library is noticed by polling");
}

// The commands alone, and what the server said of the first.
std::optional<Finding> refusal(const Reply& probed) {
  std::string commands;
  bool channel_only = true;
  for (std::size_t i = 0; i + 1 < probed.elements.size(); i += 2) {
    commands += (commands.empty() ? "" : ", ") + probed.elements[i].text;
    channel_only = channel_only && probed.elements[i].text == "PUBLISH";
  }
  if (commands.empty()) return std::nullopt;
  const std::string found = "fails: " + commands + " (" + probed.elements[1].text + ")";
  if (channel_only) {
    return warning("channels", found,
                   "let this user publish to the channels in docs/redis.md; until then, waiting polls");
  }
  return failure("authorised", found, "let this user run these on the keys of the prefix; docs/redis.md has the list");
}

}  // namespace

asio::awaitable<std::vector<Finding>> diagnose(Examiner examiner) {
  std::vector<Finding> findings;
  try {
    core::Contact contact;
    for (int i = 0; i < core::Contact::requests; ++i) {
      std::string request = format_command({"TIME"});
      const auto sent_at = steady_clock::now();
      const Reply reply = co_await examiner.ask(std::move(request));
      const auto took = steady_clock::now() - sent_at;
      const auto host_time = async::system_now();
      if (reply.is_error()) throw LockError(ErrorCode::auth_failed, "TIME is refused: " + reply.text);
      const auto skew = core::clock_skew(host_time, std::chrono::ceil<milliseconds>(took), time_of(reply));
      contact.answered(took, skew);
    }
    contact.report(findings);

    std::string ask_info = format_command({"INFO"});
    const Reply info_reply = co_await examiner.ask(std::move(ask_info));
    std::string ask_fsync = format_command({"CONFIG", "GET", "appendfsync"});
    const Reply fsync = co_await examiner.ask(std::move(ask_fsync));
    std::string ask_save = format_command({"CONFIG", "GET", "save"});
    const Reply save = co_await examiner.ask(std::move(ask_save));
    std::string ask_events = format_command({"CONFIG", "GET", "notify-keyspace-events"});
    const Reply events = co_await examiner.ask(std::move(ask_events));
    bool is_replica = false;
    if (info_reply.is_error()) {
      findings.push_back(warning("server", "INFO is refused: eviction, persistence and replication were not checked",
                                 "let this user run info, at least for this"));
    } else {
      const Info info(info_reply.text);
      is_replica = info.value("role") != "master";
      findings.push_back(fine("server", "Redis " + info.value("redis_version")));
      findings.push_back(replication(info));
      findings.push_back(eviction(info));
      findings.push_back(persistence(info, setting(fsync), setting(save)));
      // One without a hash tag in its prefix would not have been let in.
      findings.push_back(fine("cluster", info.value("cluster_enabled") == "1" ? "yes, and the prefix has a hash tag"
                                                                              : "no, so the prefix needs no hash tag"));
    }
    findings.push_back(keyspace_events(setting(events)));
    if (!is_replica) {
      const Reply probed = co_await examiner.probe();
      findings.push_back(refusal(probed).value_or(fine("authorised", "for everything that locks need")));
    }
  } catch (const LockError& error) {
    findings.push_back(core::obstacle(error));
    co_return findings;
  }
  try {
    co_await examiner.subscribe();
    findings.push_back(fine("subscribing", "possible: waiters are woken"));
  } catch (const LockError& error) {
    findings.push_back(
        core::no_wake_ups("subscribing", error, "let this user subscribe to the channels in docs/redis.md"));
  }
  co_return findings;
}

}  // namespace syncguard::redis
