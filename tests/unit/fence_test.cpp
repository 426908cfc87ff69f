#include "core/fence_limit.hpp"
#include "support/expect_error.hpp"
#include "support/stub_backend.hpp"
#include "support/vectors.hpp"

#include <syncguard/fence.hpp>
#include <syncguard/locks.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <iomanip>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace syncguard {
namespace {

using namespace std::chrono_literals;
using testing::expect_error;

TEST(Fence, MatchesTypeScriptVectors) {
  const auto vectors = testing::load_vectors("fences");
  ASSERT_FALSE(vectors.empty());
  for (const auto& vector : vectors) {
    // The vectors contain negative counters. As unsigned numbers, they are far above the largest fence.
    const auto value = static_cast<std::uint64_t>(std::stoll(vector.at("value").get<std::string>()));
    if (vector.contains("error")) {
      expect_error(ErrorCode::invalid_argument, [&] { (void)Fence(value); });
    } else {
      EXPECT_EQ(Fence(value).str(), vector.at("result").get<std::string>());
      EXPECT_EQ(Fence::parse(Fence(value).str()), Fence(value));
    }
  }
}

TEST(Fence, StreamsAsText) {
  std::ostringstream stream;
  stream << Fence(42) << ' ' << std::setw(20) << Fence(7);
  EXPECT_EQ(stream.str(), "000000000000042      000000000000007");
}

TEST(Fence, TextOrderIsNumericOrder) {
  std::mt19937_64 random(7);  // NOLINT(cert-msc51-cpp): repeatable on purpose
  for (int round = 0; round < 10'000; ++round) {
    // All magnitudes are equally likely, so that numbers of different lengths are compared.
    const Fence a(random() % (Fence::max_value + 1) >> (random() % 50));
    const Fence b(random() % (Fence::max_value + 1) >> (random() % 50));
    ASSERT_EQ(a < b, a.str() < b.str());
    ASSERT_EQ(a == b, a.str() == b.str());
  }
}

TEST(Fence, RejectsTextOtherThanFifteenDigits) {
  for (const std::string_view text :
       {"", "1", "00000000000001", "0000000000000001", "00000000000000x", "-00000000000001"}) {
    expect_error(ErrorCode::invalid_argument, [&] { (void)Fence::parse(text); });
  }
}

TEST(Fence, IsRejectedAboveLimit) {
  EXPECT_EQ(core::next_fence(0), Fence(1));
  EXPECT_EQ(core::next_fence(Fence::refuse_above - 1), Fence(Fence::refuse_above));
  expect_error(ErrorCode::internal, [] { (void)core::next_fence(Fence::refuse_above); });
}

TEST(Fence, IsNeverBelowFloorNorCounter) {
  EXPECT_EQ(core::next_fence(7, 7), Fence(8)) << "counting on where the clock stands still";
  EXPECT_EQ(core::next_fence(7, 8), Fence(8));
  EXPECT_EQ(core::next_fence(7, 900), Fence(900));
  EXPECT_EQ(core::next_fence(900, 7), Fence(901)) << "a counter ahead of the clock";
  expect_error(ErrorCode::internal, [] { (void)core::next_fence(Fence::refuse_above, 7); });
}

TEST(Fence, FloorIsTimeInHundredMicroseconds) {
  const auto floor_at = [](std::chrono::milliseconds time) { return core::clock_floor(Timestamp(time)); };
  EXPECT_EQ(floor_at(0ms), 0U);
  EXPECT_EQ(floor_at(1ms), 10U);
  EXPECT_EQ(floor_at(1'794'777'078'522ms), 17'947'770'785'220U);
  EXPECT_EQ(floor_at(9'000'000'000'000ms), Fence::warn_above);
}

// A store whose clock shows a given time.
class StoreAtTime : public testing::StubBackend {
 public:
  StoreAtTime(Timestamp now, FenceSource fences) : now_(now), fences_(fences) {}
  [[nodiscard]] Capabilities capabilities() const override { return {.name = "stub", .fences = fences_}; }
  asio::awaitable<AcquireReply> acquire(const AcquireRequest& request, const CallLimits&) override {
    co_return Granted{Fence(1), now_ + request.ttl, request.ttl};
  }

 private:
  const Timestamp now_;
  const FenceSource fences_;
};

TEST(Fence, AbsurdClockOfStoreIsLogged) {
  const auto warnings_at = [](Timestamp now, FenceSource fences) {
    std::vector<std::string> warnings;
    const Log log([&](LogLevel, std::string_view message) { warnings.emplace_back(message); });
    Locks locks(std::make_unique<StoreAtTime>(now, fences), {.log = log});
    locks.acquire("key").detach();
    locks.acquire("key").detach();
    EXPECT_TRUE(log.flush(20s));
    return warnings;
  };
  const Timestamp last(9'000'000'000'000ms);
  EXPECT_THAT(warnings_at(last, FenceSource::clock), ::testing::IsEmpty()) << "although the lock expires after that";
  EXPECT_THAT(warnings_at(last + 1ms, FenceSource::counter), ::testing::IsEmpty());
  EXPECT_THAT(
      warnings_at(last + 1ms, FenceSource::clock),
      ::testing::ElementsAre(::testing::HasSubstr("the clock of the lock store shows a time after the year 2255")));
}

TEST(Fence, AbsurdClockGivesNoFloor) {
  for (const auto time :
       {9'000'000'000'001ms, std::chrono::milliseconds::max(), -1ms, std::chrono::milliseconds::min()}) {
    EXPECT_EQ(core::clock_floor(Timestamp(time)), 0U) << time.count();
    EXPECT_EQ(core::is_implausible(Timestamp(time)), time > 0ms) << time.count();
  }
}

}  // namespace
}  // namespace syncguard
