#include "core/validation.hpp"
#include "support/expect_error.hpp"
#include "support/vectors.hpp"

#include <syncguard/key.hpp>
#include <syncguard/lock_info.hpp>

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <random>
#include <type_traits>

namespace syncguard {
namespace {

using testing::expect_error;

std::string to_utf8(char32_t code_point) {
  utf8proc_uint8_t bytes[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  return {reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length)};
}

std::string canonical_decomposition(const std::string& text) {
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> decomposed(
      utf8proc_NFD(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str())), &std::free);
  return reinterpret_cast<const char*>(decomposed.get());
}

TEST(Key, NullPointerIsRejected) {
  const char* const null = nullptr;
  expect_error(ErrorCode::invalid_argument, [&] { (void)Key(null); });
  char* const mutable_null = nullptr;
  expect_error(ErrorCode::invalid_argument, [&] { (void)Key(mutable_null); });
  static_assert(!std::is_constructible_v<Key, std::nullptr_t>);
}

TEST(Key, MatchesTypeScriptVectors) {
  const auto vectors = testing::load_vectors("keys");
  ASSERT_FALSE(vectors.empty());
  for (const auto& vector : vectors) {
    const auto input = vector.at("input").get<std::string>();
    if (vector.contains("error")) {
      expect_error(ErrorCode::invalid_argument, [&] { (void)Key(input); });
      continue;
    }
    const Key key(input);
    EXPECT_EQ(key.str(), vector.at("result").get<std::string>());
    EXPECT_EQ(key.str().size(), vector.at("utf8_bytes").get<std::size_t>());
    EXPECT_EQ(hash_key(input), vector.at("hash24").get<std::string>());
  }
}

TEST(Key, CanonicallyEqualSpellingsAreEqual) {
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): repeatable on purpose
  // Characters with several canonical spellings: accented Latin, Greek with breathings, Hangul, combining marks.
  const std::vector<std::pair<char32_t, char32_t>> ranges = {{0xC0, 0x17F},  {0x1E00, 0x1FFF}, {0xAC00, 0xD7A3},
                                                             {0x300, 0x314}, {'a', 'z'},       {0x1F300, 0x1F5FF}};
  int different_spellings = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 8; ++i) {
      const auto& [first, last] = ranges[random() % ranges.size()];
      text += to_utf8(static_cast<char32_t>(first + random() % (last - first + 1)));
    }
    const std::string decomposed = canonical_decomposition(text);
    if (decomposed != text) ++different_spellings;
    ASSERT_EQ(Key(text), Key(decomposed));
    ASSERT_EQ(Key(Key(text).str()), Key(text));
    ASSERT_EQ(hash_key(text), hash_key(decomposed));
  }
  EXPECT_GT(different_spellings, 1000);
}

TEST(Key, RejectsInvalidUtf8) {
  for (const std::string_view text : {"\xff", "a\x80", "\xc3", "\xed\xa0\x80", "\xc0\x80", "\xf4\x90\x80\x80"}) {
    expect_error(ErrorCode::invalid_argument, [&] { (void)Key(text); });
  }
}

TEST(Key, MeasuresItsLimitAfterNormalization) {
  std::string longer_spelling;
  for (int i = 0; i < 256; ++i) longer_spelling += "e\xcc\x81";  // 3 bytes that become 2
  EXPECT_EQ(Key(longer_spelling).str().size(), 512U);
  expect_error(ErrorCode::invalid_argument, [&] { (void)Key(longer_spelling + "x"); });
  expect_error(ErrorCode::invalid_argument, [] { (void)Key(std::string(1'000'000, 'x')); });
}

TEST(Key, ErrorsDoNotRepeatKey) {
  const auto error = testing::error_of([] { (void)Key(std::string(513, 'q')); });
  ASSERT_TRUE(error);
  EXPECT_EQ(std::string(error->what()).find("qq"), std::string::npos);
}

}  // namespace
}  // namespace syncguard
