// A client and a server that answers anything. The first byte of the input chooses the operation. The rest is the
// server's reply to each piece that it receives, separated by zeros; lines separate messages, and a message is its type
// and its contents:
//
//   T3             a description of three columns
//   Da<tab>b       a row; its columns are separated by tabs
//   E42501<text>   an error
//   CSELECT 1~     any other type; a tilde stands for a zero

#include "scripted_peer.hpp"
#include "support/temporary_folder.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace sg = syncguard;
using sg::testing::split;

std::string number(std::size_t value, unsigned bytes) {
  std::string text;
  for (unsigned shift = 8 * bytes; shift > 0; shift -= 8) text += static_cast<char>(value >> (shift - 8));
  return text;
}

std::string message(char type, const std::string& contents) { return type + number(contents.size() + 4, 4) + contents; }

std::string encoded(const std::string& line) {
  if (line.empty()) return "";
  const char type = line.front();
  const auto text = line.substr(1);
  constexpr std::size_t sqlstate_length = 5;
  std::string contents;
  switch (type) {
    case 'T': {
      const std::size_t columns = text.empty() ? 0 : static_cast<unsigned char>(text.front()) % 16;
      contents = number(columns, 2);
      // A name, and where it is from and of which type.
      for (std::size_t i = 0; i < columns; ++i) contents += "c" + std::string(19, '\0');
      break;
    }
    case 'D': {
      const auto columns = split(text, '\t');
      contents = number(columns.size(), 2);
      for (const auto& column : columns) contents += number(column.size(), 4) + column;
      break;
    }
    case 'E':
      contents = "C" + text.substr(0, sqlstate_length) + '\0' + "M" +
                 text.substr(std::min(text.size(), sqlstate_length)) + '\0' + '\0';
      break;
    case 'Z':
      contents = text.substr(0, 1);
      break;
    default:
      contents = text;
      std::ranges::replace(contents, '~', '\0');
  }
  return message(type, contents);
}

}  // namespace

// libpq leaks a result that a server does not complete.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT(readability-identifier-naming): the sanitizer's name
  return "leak:libpq.so";
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const sg::testing::TemporaryFolder folder;
  static sg::testing::ScriptedPeer peer(folder.path() / ".s.PGSQL.5432");
  std::vector<std::string> script;
  for (const auto& piece : split({reinterpret_cast<const char*>(data) + 1, size - 1}, '\0')) {
    std::string bytes;
    for (const auto& line : split(piece, '\n')) bytes += encoded(line);
    script.push_back(bytes);
  }
  const auto greeting = message('R', number(0, 4)) + message('Z', "I");
  peer.play(script, greeting, sg::testing::ScriptedPeer::First::greeted);
  sg::testing::run_any_operation(
      data[0],
      "postgres://me@/db?sslmode=disable&gssencmode=disable&operation_timeout=100ms&host=" + folder.path().string());
  return 0;
}
