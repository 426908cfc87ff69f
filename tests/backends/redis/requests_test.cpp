// The parts of a connection to Redis that use no sockets.

#include "backends/redis/requests.hpp"
#include "backends/redis/handshake.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using redis::Clock;
using redis::Info;
using redis::Reply;
using redis::Request;
using redis::RequestPtr;
using redis::Sent;
using redis::Suspended;
using redis::Unsent;

enum class Resumed { no, here, later };

struct Caller : Suspended {
  explicit Caller(Resumed& place) : resumed(place) {}
  void resume() override { resumed = Resumed::here; }
  void resume_later() override { resumed = Resumed::later; }
  Resumed& resumed;
};

struct RedisRequests : ::testing::Test {
  RequestPtr add(const std::string& bytes, Clock::time_point deadline = Clock::time_point::max()) {
    auto request = std::make_shared<Request>(bytes, deadline);
    unsent.add(request);
    return request;
  }
  std::string send() {
    std::string output;
    sent.take_from(unsent, output, now);
    return output;
  }
  void answer(std::int64_t number) {
    Reply reply;
    reply.kind = Reply::Kind::integer;
    reply.integer = number;
    if (const auto caller = sent.answered(now)->answer({std::move(reply), 1})) caller->resume();
  }

  Clock::time_point now = Clock::time_point(1h);
  Unsent unsent;
  Sent sent{now};
};

TEST_F(RedisRequests, RepliesMatchInSendOrder) {
  const auto first = add("a");
  const auto second = add("b");
  Resumed resumed = Resumed::no;
  second->await(std::make_unique<Caller>(resumed));
  EXPECT_EQ(send(), "ab");
  answer(1);
  EXPECT_EQ(resumed, Resumed::no);
  answer(2);
  EXPECT_EQ(resumed, Resumed::here);
  EXPECT_EQ(first->take_answer().reply.integer, 1);
  EXPECT_EQ(second->take_answer().reply.integer, 2);
  EXPECT_THROW((void)sent.answered(now), redis::ProtocolError);
}

TEST_F(RedisRequests, CanceledBeforeSendIsNotSent) {
  const auto request = add("a");
  add("b");
  request->fail(ErrorCode::aborted, "stopped");
  EXPECT_EQ(send(), "b");
  EXPECT_FALSE(error_of([&] { (void)request->take_answer(); })->in_doubt());
}

TEST_F(RedisRequests, CanceledAfterSendIsInDoubtAndStillConsumesReply) {
  const auto first = add("a");
  const auto second = add("b");
  Resumed resumed = Resumed::no;
  first->await(std::make_unique<Caller>(resumed));
  send();
  first->fail(ErrorCode::aborted, "stopped");
  EXPECT_EQ(resumed, Resumed::later);
  answer(1);
  answer(2);
  EXPECT_EQ(resumed, Resumed::later) << "the caller must be resumed only once";
  EXPECT_TRUE(error_of([&] { (void)first->take_answer(); })->in_doubt());
  EXPECT_EQ(second->take_answer().reply.integer, 2);
}

TEST_F(RedisRequests, CallerOfCanceledRequestResumes) {
  const auto request = add("a");
  request->fail(ErrorCode::aborted, "stopped");
  Resumed resumed = Resumed::no;
  request->await(std::make_unique<Caller>(resumed));
  EXPECT_EQ(resumed, Resumed::later);
}

TEST_F(RedisRequests, AreWrittenInBatches) {
  const std::string large(40 * 1024, 'x');
  for (int i = 0; i < 3; ++i) add(large);
  EXPECT_EQ(send().size(), 2 * large.size());
  EXPECT_EQ(sent.size(), 2U);
  EXPECT_EQ(send().size(), large.size());
  EXPECT_TRUE(unsent.empty());
}

TEST_F(RedisRequests, ExpireAtTheirDeadline) {
  const auto late = add("a", now + 1s);
  add("b");
  send();
  const auto later = add("c", now + 2s);
  EXPECT_EQ(sent.expire(now, "too late"), now + 1s);
  EXPECT_EQ(unsent.expire(now, "too late"), now + 2s);
  now += 1s;
  EXPECT_EQ(sent.expire(now, "too late"), Clock::time_point::max()) << "the other request has no deadline";
  EXPECT_EQ(unsent.expire(now, "too late"), now + 1s);
  now += 1s;
  EXPECT_EQ(unsent.expire(now, "too late"), Clock::time_point::max());
  for (const auto& request : {late, later}) {
    const auto error = error_of([&] { (void)request->take_answer(); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::network_timeout);
    EXPECT_EQ(error->in_doubt(), request == late);
  }
}

TEST_F(RedisRequests, SilenceCountsFromWhenReplyIsDue) {
  EXPECT_FALSE(sent.silent_since());
  now += 1h;
  const auto begin = now;
  add("a");
  add("b");
  send();
  now += 1s;
  EXPECT_EQ(sent.silent_since(), begin) << "no reply was due during the hour before";
  answer(1);
  EXPECT_EQ(sent.silent_since(), begin + 1s);
  answer(2);
  EXPECT_FALSE(sent.silent_since());
}

TEST_F(RedisRequests, FailTogether) {
  const auto was_sent = add("a");
  send();
  const auto unawaited = add("b");
  const auto awaited = add("c");
  Resumed resumed = Resumed::no;
  awaited->await(std::make_unique<Caller>(resumed));
  unsent.forget_unawaited();
  EXPECT_EQ(unsent.size(), 1U);
  sent.fail_all(LockError(ErrorCode::service_unavailable, "lost", Effect::in_doubt));
  EXPECT_TRUE(sent.empty());
  EXPECT_TRUE(was_sent->is_finished());
  EXPECT_FALSE(unawaited->is_finished());
  EXPECT_EQ(resumed, Resumed::no) << "an unsent request waits for the next connection";
  awaited->fail(ErrorCode::aborted, "stopped");
  unsent.forget_finished();
  EXPECT_TRUE(unsent.empty());
}

TEST(RedisInfo, ReportsWhetherServerEvicts) {
  const auto eviction = [](const char* text) { return Info(text).eviction(); };
  EXPECT_EQ(eviction("# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n"), Info::Eviction::off);
  EXPECT_EQ(eviction("maxmemory:100\r\nmaxmemory_policy:noeviction"), Info::Eviction::off);
  EXPECT_EQ(eviction("maxmemory:100\r\nmaxmemory_policy:volatile-ttl\r\n"), Info::Eviction::on);
  EXPECT_EQ(eviction("maxmemory:100\r\n"), Info::Eviction::unknown);
  EXPECT_EQ(eviction("maxmemory_policy:allkeys-lru\r\n"), Info::Eviction::unknown);
  EXPECT_EQ(eviction(""), Info::Eviction::unknown);
  EXPECT_EQ(Info("a:b:c\r\nd\r\n").value("a"), "b:c");
}

}  // namespace
}  // namespace syncguard::testing
