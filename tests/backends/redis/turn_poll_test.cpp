#include "backends/redis/turn_poll.hpp"

#include "backends/redis/scripts.hpp"

#include <asio/io_context.hpp>
#include <asio/post.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>

namespace syncguard::redis {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// How long it takes to poll three times, if the server answers that a reservation ends after so many milliseconds.
Clock::duration time_of_three_polls(std::int64_t reservation_ends_in) {
  asio::io_context context;
  const auto turn_poll = std::make_shared<TurnPoll>(Log(), Names("syncguard"));
  int polls = 0;
  const auto answer = [&](const Arguments&) -> asio::awaitable<Reply> {
    if (++polls == 3) turn_poll->close();
    Reply ends;
    ends.kind = Reply::Kind::integer;
    ends.integer = reservation_ends_in;
    Reply reply;
    reply.kind = Reply::Kind::array;
    reply.elements.push_back(ends);
    co_return reply;
  };
  const auto begin = Clock::now();
  const auto waiter = LockId::generate();
  turn_poll->add(context.get_executor(), {.run = answer, .wake = [](const LockId&) {}}, waiter, {.key = "key"});
  context.run();
  return Clock::now() - begin;
}

TEST(RedisTurnPoll, PollsWhenReservationEnds) { EXPECT_GE(time_of_three_polls(20), 2 * 20ms); }

// A broken or hostile server may say anything. The longest times would overflow a clock and be taken for the past.
TEST(RedisTurnPoll, PollsNoMoreOftenIfReservationNeverEnds) {
  for (const std::int64_t never : {std::numeric_limits<std::int64_t>::max(), std::int64_t{9'223'372'036'854'775}}) {
    EXPECT_GE(time_of_three_polls(never), 2 * 200ms) << never;
  }
}

// One waiter's reservation always ends in a millisecond, which makes the rounds short. The other one shall poll again
// in ten rounds.
TEST(RedisTurnPoll, LeavesOutWaitersForAsManyRoundsAsTheServerSays) {
  asio::io_context context;
  const auto turn_poll = std::make_shared<TurnPoll>(Log(), Names("syncguard"));
  const auto hurried = LockId::generate();
  const auto patient = LockId::generate();
  constexpr int rounds = 300;
  int of_hurried = 0;
  int of_patient = 0;
  const auto answer = [&](const Arguments& arguments) -> asio::awaitable<Reply> {
    const auto request = arguments.by_text(scripts().poll);
    const auto hurried_at = request.find(hurried.view());
    const auto patient_at = request.find(patient.view());
    // In the order of the request.
    std::map<std::size_t, std::int64_t> answers{{hurried_at, 1}, {patient_at, -10}};
    answers.erase(std::string::npos);
    Reply reply;
    reply.kind = Reply::Kind::array;
    for (const auto& [place, integer] : answers) {
      reply.elements.push_back({.kind = Reply::Kind::integer, .integer = integer});
    }
    if (patient_at != std::string::npos) ++of_patient;
    if (++of_hurried == rounds) turn_poll->close();
    co_return reply;
  };
  const TurnPoll::Actions actions{.run = answer, .wake = [](const LockId&) {}};
  turn_poll->add(context.get_executor(), actions, hurried, {.key = "key"});
  turn_poll->add(context.get_executor(), actions, patient, {.key = "key"});
  context.run();
  EXPECT_GT(of_patient, rounds / 20);
  EXPECT_LT(of_patient, rounds / 5);
}

TEST(RedisTurnPoll, DoesNotLeaveOutAWaiterWithANewPlace) {
  asio::io_context context;
  const auto turn_poll = std::make_shared<TurnPoll>(Log(), Names("syncguard"));
  const auto waiter = LockId::generate();
  int polls = 0;
  const auto answer = [&](const Arguments&) -> asio::awaitable<Reply> {
    if (++polls == 3) turn_poll->close();
    // Set after the answer arrived, which says to leave it out for hours.
    asio::post(context, [&, place = std::to_string(polls)] { turn_poll->set_place(waiter, place); });
    Reply reply;
    reply.kind = Reply::Kind::array;
    reply.elements.push_back({.kind = Reply::Kind::integer, .integer = -1'000'000});
    co_return reply;
  };
  turn_poll->add(context.get_executor(), {.run = answer, .wake = [](const LockId&) {}}, waiter, {.key = "key"});
  context.run_for(std::chrono::seconds(60));
  EXPECT_EQ(polls, 3);
}

}  // namespace
}  // namespace syncguard::redis
