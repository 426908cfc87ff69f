#include "core/fence_limit.hpp"
#include "expect_error.hpp"
#include "unit/vectors.hpp"

#include <syncguard/fence.hpp>

#include <gtest/gtest.h>

#include <random>

namespace syncguard {
namespace {

using testing::expect_error;

TEST(Fence, AgreesWithTheOtherLibraryOnEveryVector) {
  const auto vectors = testing::load_vectors("fences");
  ASSERT_FALSE(vectors.empty());
  for (const auto& vector : vectors) {
    // A negative counter cannot come up here: it wraps to a value far above the largest fence.
    const auto value = static_cast<std::uint64_t>(std::stoll(vector.at("value").get<std::string>()));
    if (vector.contains("error")) {
      expect_error(ErrorCode::invalid_argument, [&] { (void)Fence(value); });
    } else {
      EXPECT_EQ(Fence(value).str(), vector.at("result").get<std::string>());
      EXPECT_EQ(Fence::parse(Fence(value).str()), Fence(value));
    }
  }
}

TEST(Fence, TextOrderIsNumericOrder) {
  std::mt19937_64 random(7);  // NOLINT(cert-msc51-cpp): repeatable on purpose
  for (int round = 0; round < 10'000; ++round) {
    // All magnitudes alike, so that numbers of different length meet.
    const Fence a(random() % (Fence::max_value + 1) >> (random() % 50));
    const Fence b(random() % (Fence::max_value + 1) >> (random() % 50));
    ASSERT_EQ(a < b, a.str() < b.str());
    ASSERT_EQ(a == b, a.str() == b.str());
  }
}

TEST(Fence, RefusesTextThatIsNotFifteenDigits) {
  for (const std::string_view text :
       {"", "1", "00000000000001", "0000000000000001", "00000000000000x", "-00000000000001"}) {
    expect_error(ErrorCode::invalid_argument, [&] { (void)Fence::parse(text); });
  }
}

TEST(Fence, IsRefusedBeforeItPassesTheLimit) {
  EXPECT_EQ(core::next_fence(0), Fence(1));
  EXPECT_EQ(core::next_fence(Fence::refuse_above - 1), Fence(Fence::refuse_above));
  expect_error(ErrorCode::internal, [] { (void)core::next_fence(Fence::refuse_above); });
}

}  // namespace
}  // namespace syncguard
