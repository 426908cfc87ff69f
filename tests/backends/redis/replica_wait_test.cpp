#include "backends/redis/replica_wait.hpp"

#include "support/expect_error.hpp"

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

namespace syncguard::redis {
namespace {

using Answer = Request::Answer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Answer confirmed_by(std::int64_t replicas, std::uint64_t connection = 1) {
  Answer answer;
  answer.reply.kind = Reply::Kind::integer;
  answer.reply.integer = replicas;
  answer.connection = connection;
  return answer;
}

// Runs everything on one thread. The test answers each WAIT.
struct ReplicaWaitTest : ::testing::Test {
  ReplicaWaitTest() {
    auto options = std::make_shared<RedisOptions>();
    options->min_replicas = 2;
    replica_wait = std::make_shared<ReplicaWait>(options, [this] { return send(); });
  }

  asio::awaitable<Answer> send() {
    auto& wait = waits.emplace_back();
    co_await wait.ready().wait(std::chrono::steady_clock::time_point::max());
    co_return wait.value();
  }

  // A caller whose write was answered on this connection. Its outcome is appended when it ends.
  void confirm(std::uint64_t connection = 1, std::stop_token stop = {}) {
    asio::co_spawn(context, collect(connection, std::move(stop)), asio::detached);
    run();
  }
  asio::awaitable<void> collect(std::uint64_t connection, std::stop_token stop) {
    const CallLimits limits{std::move(stop), std::chrono::steady_clock::time_point::max()};
    try {
      co_await replica_wait->confirm(connection, limits);
      outcomes.emplace_back("confirmed");
    } catch (const LockError& error) {
      EXPECT_TRUE(error.in_doubt());
      outcomes.emplace_back(error.what());
    }
  }
  void run() {
    context.restart();
    context.poll();
  }
  void answer(std::size_t wait, const Answer& answer) {
    waits.at(wait).set_value(answer);
    run();
  }

  asio::io_context context;
  std::deque<async::Promise<Answer>> waits;
  std::vector<std::string> outcomes;
  std::shared_ptr<ReplicaWait> replica_wait;
};

TEST_F(ReplicaWaitTest, CallersDuringOneWaitShareTheNext) {
  confirm();
  EXPECT_EQ(waits.size(), 1U);
  for (int i = 0; i < 3; ++i) confirm();
  EXPECT_EQ(waits.size(), 1U) << "at most one may be in flight";
  answer(0, confirmed_by(2));
  EXPECT_THAT(outcomes, ElementsAre("confirmed")) << "the first one does not cover later writes";
  ASSERT_EQ(waits.size(), 2U);
  answer(1, confirmed_by(3));
  EXPECT_EQ(outcomes, std::vector<std::string>(4, "confirmed"));
  EXPECT_EQ(waits.size(), 2U);
  confirm();
  EXPECT_EQ(waits.size(), 3U);
  answer(2, confirmed_by(2));
}

TEST_F(ReplicaWaitTest, TooFewReplicasLeaveWriteInDoubt) {
  confirm();
  answer(0, confirmed_by(1));
  EXPECT_THAT(outcomes, ElementsAre(HasSubstr("1 of 2")));
}

TEST_F(ReplicaWaitTest, AnswerOnAnotherConnectionConfirmsNothing) {
  confirm(1);
  answer(0, confirmed_by(2, 2));
  EXPECT_THAT(outcomes, ElementsAre(HasSubstr("connection to Redis was lost")));
}

TEST_F(ReplicaWaitTest, RefusalAndFailureLeaveWriteInDoubt) {
  confirm();
  auto refusal = confirmed_by(0);
  refusal.reply.kind = Reply::Kind::error;
  refusal.reply.text = "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
  answer(0, refusal);
  confirm();
  waits.at(1).set_error(std::make_exception_ptr(LockError(ErrorCode::service_unavailable, "lost")));
  run();
  confirm();
  auto nonsense = confirmed_by(2);
  nonsense.reply.kind = Reply::Kind::text;
  answer(2, nonsense);
  EXPECT_THAT(outcomes, ElementsAre(HasSubstr("no longer a master"), HasSubstr("lost"), HasSubstr("unexpected reply")));
}

TEST_F(ReplicaWaitTest, CallerCanStopWaiting) {
  std::stop_source stop;
  confirm(1, stop.get_token());
  EXPECT_THAT(outcomes, IsEmpty());
  stop.request_stop();
  run();
  EXPECT_EQ(outcomes.size(), 1U);
  answer(0, confirmed_by(2));
  EXPECT_EQ(outcomes.size(), 1U);
}

}  // namespace
}  // namespace syncguard::redis
