#include "backends/redis/scripts.hpp"

#include "core/encodings.hpp"
#include "core/fence_limit.hpp"
#include "core/listed.hpp"
#include "core/validation.hpp"
#include "redis_lua.hpp"

#include <syncguard/error.hpp>

#include <openssl/evp.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <span>
#include <system_error>
#include <utility>

namespace syncguard::redis {

// The only hash that Redis knows. Of scripts, no security rests on it; of lock ids, only that 128 random bits cannot be
// found from their hash.
std::string sha1(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha1(), nullptr) != 1) {
    throw LockError(ErrorCode::internal, "OpenSSL does not provide SHA-1, which Redis uses to identify scripts");
  }
  return core::hexadecimal(std::span(digest).first(size));
}

Script::Script(std::initializer_list<std::string_view> parts) {
  for (const auto part : parts) text += part;
  hash = sha1(text);
}

const Scripts& scripts() {
  static const Scripts all{.acquire = Script{lua::lock, lua::reservation, lua::acquire},
                           .release = Script{lua::lock, lua::owned, lua::reservation, lua::turn, lua::release},
                           .extend = Script{lua::lock, lua::owned, lua::extend},
                           .is_locked = Script{lua::lock, lua::owned, lua::is_locked},
                           .lookup_key = Script{lua::lock, lua::owned, lua::describe, lua::lookup_key},
                           .lookup_id = Script{lua::lock, lua::owned, lua::describe, lua::lookup_id},
                           .remove_dead = Script{lua::lock, lua::owned, lua::remove_dead},
                           .join = Script{lua::reservation, lua::place, lua::join},
                           .poll = Script{lua::reservation, lua::place, lua::poll},
                           .leave = Script{lua::lock, lua::owned, lua::reservation, lua::turn, lua::leave},
                           .list = Script{lua::lock, lua::owned, lua::describe, lua::list},
                           .inspect = Script{lua::lock, lua::owned, lua::describe, lua::inspect},
                           .break_lock = Script{lua::lock, lua::owned, lua::reservation, lua::turn, lua::break_lock},
                           .raise_fence = Script{lua::raise_fence},
                           .probe = Script{lua::probe},
                           .highest_counter = Script{lua::highest_counter}};
  return all;
}

namespace {

using std::chrono::milliseconds;

[[noreturn]] void refuse_reply() {
  throw LockError(ErrorCode::internal, "unexpected reply from a Redis script", Effect::in_doubt);
}

[[noreturn]] void refuse_foreign() {
  throw LockError(ErrorCode::internal,
                  "the value stored for this key is not a lock: another program uses the same prefix");
}

// What a script says first.
enum class Verdict { yes = 1, no = 0, not_found = -1, expired = -2, foreign = -3, counter_at_end = -4 };

Verdict verdict_of(const Reply& reply) {
  const Reply& first = reply.kind == Reply::Kind::array && !reply.elements.empty() ? reply.elements.front() : reply;
  if (first.kind != Reply::Kind::integer || first.integer < -4 || first.integer > 1) refuse_reply();
  const auto verdict = static_cast<Verdict>(first.integer);
  if (verdict == Verdict::foreign) refuse_foreign();
  return verdict;
}

std::int64_t integer_at(const Reply& reply, std::size_t position) {
  if (reply.elements.size() <= position || reply.elements[position].kind != Reply::Kind::integer) refuse_reply();
  return reply.elements[position].integer;
}

milliseconds duration_at(const Reply& reply, std::size_t position) { return milliseconds(integer_at(reply, position)); }
Timestamp time_at(const Reply& reply, std::size_t position) { return Timestamp(duration_at(reply, position)); }

Fence fence_at(const Reply& reply, std::size_t position) {
  const auto value = integer_at(reply, position);
  if (value <= 0 || static_cast<std::uint64_t>(value) > Fence::max_value) refuse_reply();
  return Fence(static_cast<std::uint64_t>(value));
}

Missing missing(Verdict verdict) { return verdict == Verdict::expired ? Missing::expired : Missing::not_found; }

}  // namespace

AcquireReply acquire_reply(const Reply& reply) {
  switch (verdict_of(reply)) {
    case Verdict::yes:
      return Granted{fence_at(reply, 1), time_at(reply, 2), duration_at(reply, 3)};
    case Verdict::no:
      return Contended{duration_at(reply, 1)};
    case Verdict::counter_at_end:
      throw core::counter_at_end();
    default:
      refuse_reply();
  }
}

ReleaseReply release_reply(const Reply& reply) {
  const auto verdict = verdict_of(reply);
  if (verdict == Verdict::yes) return Released{};
  return missing(verdict);
}

ExtendReply extend_reply(const Reply& reply) {
  const auto verdict = verdict_of(reply);
  if (verdict == Verdict::yes) return Extended{time_at(reply, 1), duration_at(reply, 2)};
  return missing(verdict);
}

bool is_locked_reply(const Reply& reply) { return verdict_of(reply) == Verdict::yes; }

namespace {

Fence counter_of(const Reply& reply) {
  if (reply.kind != Reply::Kind::text) refuse_reply();
  std::uint64_t value = 0;
  const auto* end = reply.text.data() + reply.text.size();
  const auto [rest, error] = std::from_chars(reply.text.data(), end, value);
  if (error != std::errc() || rest != end) throw core::counter_at_end();
  return core::fence_of_counter(value);
}

std::optional<std::size_t> waiters_of(std::int64_t count) {
  return count < 0 ? std::nullopt : std::optional(static_cast<std::size_t>(count));
}

}  // namespace

ListStep list_reply(const Reply& reply) {
  ListStep step;
  if (reply.elements.size() < 2) refuse_reply();
  step.cursor = reply.elements[0].text;
  step.now = time_at(reply, 1);
  for (const auto& entry : std::span(reply.elements).subspan(2)) {
    constexpr std::size_t fields = 6;
    if (entry.elements.size() < fields) refuse_reply();
    try {
      ListedLock lock{.key = entry.elements[0].text,
                      .expires_at = time_at(entry, 1),
                      .acquired_at = time_at(entry, 2),
                      .fence = Fence::parse(entry.elements[3].text),
                      .holder = core::stored_holder(entry.elements[4].text),
                      .waiters = waiters_of(integer_at(entry, 5))};
      step.locks.push_back({.lock = std::move(lock),
                            .name = entry.elements.size() > fields ? entry.elements[fields].text : std::string()});
    } catch (const LockError& error) {
      // The document is not a lock: it is not listed.
      if (error.code() != ErrorCode::invalid_argument) throw;
    }
  }
  return step;
}

KeyState inspect_reply(const Reply& reply) {
  constexpr std::size_t fields = 4;
  if (reply.elements.size() != fields) refuse_reply();
  KeyState state;
  state.now = time_at(reply, 0);
  state.fence = counter_of(reply.elements[1]);
  if (const auto lock = lookup_reply(reply.elements[3])) {
    state.lock = core::listed(*lock, waiters_of(integer_at(reply, 2)));
  }
  return state;
}

bool break_lock_reply(const Reply& reply) { return verdict_of(reply) == Verdict::yes; }

Fence raise_fence_reply(const Reply& reply) { return counter_of(reply); }

// A lock as other programs may have written it, too.
std::optional<LockRecord> lookup_reply(const Reply& reply) {
  if (verdict_of(reply) != Verdict::yes) return std::nullopt;
  constexpr std::size_t fields = 7;
  if (reply.elements.size() != fields) refuse_foreign();
  try {
    return LockRecord{.key = reply.elements[1].text,
                      .lock_id = LockId(reply.elements[2].text),
                      .expires_at = time_at(reply, 3),
                      .acquired_at = time_at(reply, 4),
                      .fence = Fence::parse(reply.elements[5].text),
                      .holder = core::stored_holder(reply.elements[6].text)};
  } catch (const LockError&) {
    refuse_foreign();
  }
}

}  // namespace syncguard::redis
