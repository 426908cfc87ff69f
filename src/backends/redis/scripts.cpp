#include "backends/redis/scripts.hpp"

#include "backends/verdict.hpp"
#include "core/encodings.hpp"
#include "core/fence_limit.hpp"
#include "core/listed.hpp"
#include "core/validation.hpp"
#include "redis_lua.hpp"

#include <syncguard/error.hpp>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <span>
#include <system_error>
#include <utility>

namespace syncguard::redis {

// The hash by which Redis identifies scripts. Their security does not depend on it. The hash of a lock id only has to
// hide 128 random bits.
std::string sha1(std::string_view text) { return core::hexadecimal(core::sha1(text)); }

namespace {

// Replaces each line `-- include NAME` by the part of that name. The parts are not functions, because defining a
// function, or using a local variable of the script in one, costs 0.1 us or more each time the script runs.
std::string with_parts(std::string_view source) {
  const std::map<std::string_view, std::string_view> parts{
      {"decode", lua::decode},     {"describe", lua::describe}, {"doubt", lua::doubt}, {"now", lua::now},
      {"owned", lua::owned},       {"pass", lua::pass},         {"read", lua::read},   {"reserve", lua::reserve},
      {"standing", lua::standing}, {"turn", lua::turn}};
  constexpr std::string_view include = "-- include ";
  std::string text;
  while (!source.empty()) {
    const auto line = source.substr(0, source.find('\n'));
    source.remove_prefix(std::min(line.size() + 1, source.size()));
    const auto words = line.substr(std::min(line.find_first_not_of(' '), line.size()));
    text += words.starts_with(include) ? with_parts(parts.at(words.substr(include.size()))) : std::string(line) + '\n';
  }
  return text;
}

// Replaces each word in capital letters that is the name of a constant by its value.
std::string with_constants(std::string_view source) {
  std::map<std::string, std::string> values;
  for (const auto& [name, value] : backends::constants) {
    std::string capitals(name);
    std::ranges::transform(capitals, capitals.begin(),
                           [](char c) { return c == '_' ? c : static_cast<char>(c - 'a' + 'A'); });
    values.emplace(std::move(capitals), std::to_string(value));
  }
  const auto is_part_of_word = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  std::string text;
  while (!source.empty()) {
    const auto end = std::ranges::find_if_not(source, is_part_of_word);
    const std::string word(source.begin(), end);
    const auto constant = values.find(word);
    text += constant != values.end() ? constant->second : word;
    source.remove_prefix(word.size());
    if (source.empty()) break;
    text += source.front();
    source.remove_prefix(1);
  }
  return text;
}

}  // namespace

Script::Script(std::string_view source) : text(with_constants(with_parts(source))), hash(sha1(text)) {}

const Scripts& scripts() {
  // Never destroyed: static objects may release locks while the process exits.
  static const auto& all = *new Scripts{.acquire = Script(lua::acquire),
                                        .release = Script(lua::release),
                                        .extend = Script(lua::extend),
                                        .is_locked = Script(lua::is_locked),
                                        .lookup_key = Script(lua::lookup_key),
                                        .lookup_id = Script(lua::lookup_id),
                                        .remove_dead = Script(lua::remove_dead),
                                        .join = Script(lua::join),
                                        .look = Script(lua::look),
                                        .leave = Script(lua::leave),
                                        .list = Script(lua::list),
                                        .inspect = Script(lua::inspect),
                                        .break_lock = Script(lua::break_lock),
                                        .raise_fence = Script(lua::raise_fence),
                                        .probe = Script(lua::probe),
                                        .highest_counter = Script(lua::highest_counter)};
  return all;
}

namespace {

using std::chrono::milliseconds;

[[noreturn]] void refuse_foreign() {
  throw LockError(ErrorCode::internal,
                  "the value stored for this key is not a lock: another program uses the same prefix");
}

using backends::Verdict;

// Reads a reply, or one entry of it. The name of the script is for error messages.
class Fields {
 public:
  Fields(const char* script, const Reply& reply) : script_(script), reply_(reply) {}

  [[noreturn]] void refuse() const {
    throw LockError(ErrorCode::internal, std::string("unexpected reply from Redis script '") + script_ + "'",
                    Effect::in_doubt);
  }

  [[nodiscard]] std::size_t count() const { return reply_.elements.size(); }

  [[nodiscard]] Verdict verdict() const {
    const Reply& first = reply_.kind == Reply::Kind::array && count() > 0 ? reply_.elements.front() : reply_;
    if (first.kind != Reply::Kind::integer || first.integer < static_cast<int>(Verdict::counter_at_end) ||
        first.integer > static_cast<int>(Verdict::yes))
      refuse();
    const auto verdict = static_cast<Verdict>(first.integer);
    if (verdict == Verdict::foreign) refuse_foreign();
    return verdict;
  }

  [[nodiscard]] const Reply& at(std::size_t position) const {
    if (count() <= position) refuse();
    return reply_.elements[position];
  }
  [[nodiscard]] const std::string& text_at(std::size_t position) const { return at(position).text; }
  [[nodiscard]] std::int64_t integer_at(std::size_t position) const {
    const Reply& field = at(position);
    if (field.kind != Reply::Kind::integer) refuse();
    return field.integer;
  }
  [[nodiscard]] milliseconds duration_at(std::size_t position) const { return milliseconds(integer_at(position)); }
  [[nodiscard]] Timestamp time_at(std::size_t position) const { return Timestamp(duration_at(position)); }
  [[nodiscard]] Fence fence_at(std::size_t position) const {
    const auto value = integer_at(position);
    if (value <= 0 || static_cast<std::uint64_t>(value) > Fence::max_value) refuse();
    return Fence(static_cast<std::uint64_t>(value));
  }
  // The number of waiters; negative if the store keeps no queue.
  [[nodiscard]] std::optional<std::size_t> waiters_at(std::size_t position) const {
    const auto count = integer_at(position);
    return count < 0 ? std::nullopt : std::optional(static_cast<std::size_t>(count));
  }
  // The whole reply as a fence counter.
  [[nodiscard]] Fence counter() const {
    if (reply_.kind != Reply::Kind::text) refuse();
    std::uint64_t value = 0;
    const auto* end = reply_.text.data() + reply_.text.size();
    const auto [rest, error] = std::from_chars(reply_.text.data(), end, value);
    if (error != std::errc() || rest != end) throw core::counter_at_end();
    return core::fence_of_counter(value);
  }

 private:
  const char* script_;
  const Reply& reply_;
};

Missing missing(Verdict verdict) { return verdict == Verdict::expired ? Missing::expired : Missing::not_found; }

// Other programs may have written the lock.
std::optional<LockRecord> read_lock(const char* script, const Reply& reply) {
  const Fields fields(script, reply);
  if (fields.verdict() != Verdict::yes) return std::nullopt;
  constexpr std::size_t count = 7;
  if (fields.count() != count) refuse_foreign();
  try {
    return LockRecord{.key = fields.text_at(1),
                      .lock_id = LockId(fields.text_at(2)),
                      .expires_at = fields.time_at(3),
                      .acquired_at = fields.time_at(4),
                      .fence = Fence::parse(fields.text_at(5)),
                      .holder = core::stored_holder(fields.text_at(6))};
  } catch (const LockError&) {
    refuse_foreign();
  }
}

}  // namespace

AcquireReply acquire_reply(const Reply& reply) {
  const Fields fields("acquire", reply);
  switch (fields.verdict()) {
    case Verdict::yes:
      return Granted{fields.fence_at(1), fields.time_at(2), fields.duration_at(3)};
    case Verdict::no:
      return Contended{fields.duration_at(1)};
    case Verdict::counter_at_end:
      throw core::counter_at_end();
    default:
      fields.refuse();
  }
}

ReleaseReply release_reply(const Reply& reply) {
  const auto verdict = Fields("release", reply).verdict();
  if (verdict == Verdict::yes) return Released{};
  return missing(verdict);
}

ExtendReply extend_reply(const Reply& reply) {
  const Fields fields("extend", reply);
  const auto verdict = fields.verdict();
  if (verdict == Verdict::yes) return Extended{fields.time_at(1), fields.duration_at(2)};
  return missing(verdict);
}

bool is_locked_reply(const Reply& reply) { return Fields("is_locked", reply).verdict() == Verdict::yes; }

std::optional<LockRecord> lookup_reply(const Reply& reply) { return read_lock("lookup", reply); }

namespace {

// How long a waiter waits. Negative: it should try now.
std::optional<milliseconds> free_in_at(const Fields& fields, std::size_t position) {
  const auto time = fields.duration_at(position);
  return time < milliseconds::zero() ? std::nullopt : std::optional(time);
}

int crowd_at(const Fields& fields, std::size_t position) {
  constexpr std::int64_t max_crowd = 1000;
  return static_cast<int>(std::clamp<std::int64_t>(fields.integer_at(position), 1, max_crowd));
}

}  // namespace

std::optional<Standing> join_reply(const Reply& reply) {
  if (reply.kind == Reply::Kind::nil) return std::nullopt;
  const Fields fields("join", reply);
  return Standing{
      .reply = {.free_in = free_in_at(fields, 0), .place = fields.integer_at(1), .is_first = fields.integer_at(2) == 1},
      .crowd = crowd_at(fields, 3)};
}

std::vector<Standing> look_reply(const Reply& reply, std::size_t count) {
  const Fields fields("look", reply);
  constexpr std::size_t numbers = 3;
  if (fields.count() != count * numbers) fields.refuse();
  std::vector<Standing> standings;
  for (std::size_t i = 0; i < fields.count(); i += numbers) {
    standings.push_back({.reply = {.free_in = free_in_at(fields, i), .is_first = fields.integer_at(i + 1) == 1},
                         .crowd = crowd_at(fields, i + 2)});
  }
  return standings;
}

ListStep list_reply(const Reply& reply) {
  const Fields fields("list", reply);
  ListStep step;
  step.now = fields.time_at(1);
  step.cursor = fields.text_at(0);
  for (const auto& element : std::span(reply.elements).subspan(2)) {
    const Fields entry("list", element);
    constexpr std::size_t count = 6;
    if (entry.count() < count) entry.refuse();
    try {
      ListedLock lock{.key = entry.text_at(0),
                      .expires_at = entry.time_at(1),
                      .acquired_at = entry.time_at(2),
                      .fence = Fence::parse(entry.text_at(3)),
                      .holder = core::stored_holder(entry.text_at(4)),
                      .waiters = entry.waiters_at(5)};
      step.locks.push_back(
          {.lock = std::move(lock), .name = entry.count() > count ? entry.text_at(count) : std::string()});
    } catch (const LockError& error) {
      // The document is not a lock: it is not listed.
      if (error.code() != ErrorCode::invalid_argument) throw;
    }
  }
  return step;
}

KeyState inspect_reply(const Reply& reply) {
  const Fields fields("inspect", reply);
  constexpr std::size_t count = 4;
  if (fields.count() != count) fields.refuse();
  KeyState state;
  state.now = fields.time_at(0);
  state.fence = Fields("inspect", fields.at(1)).counter();
  if (const auto lock = read_lock("inspect", fields.at(3))) {
    core::set_holder(state, core::listed(*lock, fields.waiters_at(2)));
  }
  return state;
}

bool break_lock_reply(const Reply& reply) { return Fields("break_lock", reply).verdict() == Verdict::yes; }

Fence raise_fence_reply(const Reply& reply) { return Fields("raise_fence", reply).counter(); }

}  // namespace syncguard::redis
