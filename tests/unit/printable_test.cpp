#include "command/printable.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace syncguard::command {
namespace {

using namespace std::string_literals;

TEST(Printable, PlainTextStaysAsItIs) {
  for (const auto* const text : {"", "deploy", "a b'c\"d~!", "Gr\u00fc\u00dfe \u65e5\u672c \U0001f512", "e\u0301"}) {
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Printable, ControlCharactersAreEscaped) {
  EXPECT_EQ(printable("a\0b\x1b[2J\x07\r\n\t\x1f"s), "a\\x00b\\x1b[2J\\x07\\x0d\\n\\t\\x1f");
  EXPECT_EQ(printable("\x7f"), "\\x7f");
  EXPECT_EQ(printable("\u0080\u009b\u009f\u00a0"), "\\u0080\\u009b\\u009f\u00a0");
}

TEST(Printable, CharactersThatChangeOrderOrLinesAreEscaped) {
  EXPECT_EQ(printable("\u061c\u200e\u200f"), "\\u061c\\u200e\\u200f");
  EXPECT_EQ(printable("\u2028\u2029\u202a\u202e"), "\\u2028\\u2029\\u202a\\u202e");
  EXPECT_EQ(printable("\u2066\u2069"), "\\u2066\\u2069");
}

TEST(Printable, BytesThatAreNotUtf8AreEscaped) {
  EXPECT_EQ(printable("\xff\x80"), "\\xff\\x80");
  EXPECT_EQ(printable("cut \xe2\x82"), "cut \\xe2\\x82");
  EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b") << "an overlong escape character";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a surrogate pair";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "above the largest code point";
}

TEST(Printable, NoTextLooksLikeAnother) {
  EXPECT_EQ(printable("C:\\temp"), "C:\\\\temp");
  const std::set<std::string> different = {"\n",    "\\n",    "\\\\n",   "\x1b",   "\\x1b", "\x9b",
                                           "\\x9b", "\u009b", "\\u009b", "\xc2\\", "\\",    "\\\\"};
  std::set<std::string> shown;
  for (const auto& text : different) shown.insert(printable(text));
  EXPECT_EQ(shown.size(), different.size());
}

TEST(Printable, LaterLinesAreIndented) {
  EXPECT_EQ(printable_lines("failed\nsyncguard: released\x1b"), "failed\n  syncguard: released\\x1b");
  EXPECT_EQ(printable_lines(""), "");
}

}  // namespace
}  // namespace syncguard::command
