// Servers that are broken, hostile, or not PostgreSQL: operations end in time, with an error, and without much memory.

#include "servers/fake_server.hpp"
#include "support/expect_error.hpp"

#include <syncguard/syncguard.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace syncguard {
namespace {

using namespace std::chrono_literals;
using testing::FakeServer;
using Then = FakeServer::Then;

std::string number(std::uint32_t value) {
  std::string bytes;
  for (unsigned shift = 32; shift > 0; shift -= 8) bytes += static_cast<char>(value >> (shift - 8));
  return bytes;
}

// A message of PostgreSQL's protocol.
std::string message(char type, const std::string& body) {
  return type + number(static_cast<std::uint32_t>(body.size() + 4)) + body;
}

// The user is accepted, and the server is ready.
const std::string greeting = message('R', number(0)) + message('Z', "I");
const std::string parsed_and_bound = message('1', "") + message('2', "");

std::string url_of(const std::string& hosts) {
  return "postgres://me@" + hosts + "/db?sslmode=disable&gssencmode=disable&operation_timeout=60s&connect_timeout=2s";
}
std::string host_of(const FakeServer& server) { return "127.0.0.1:" + std::to_string(server.port()); }

class PostgresPeer : public ::testing::Test {
 public:
  // The error of an operation if the server answers with these bytes.
  static std::optional<LockError> error_of_answer(const std::string& answer, Then then = Then::stay) {
    const FakeServer server({.answer = answer, .greeting = greeting, .then = then});
    const auto begin = std::chrono::steady_clock::now();
    auto error = testing::error_of([&] {
      auto locks = open(url_of(host_of(server)));
      (void)locks.is_locked("key");
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s) << "it ended by its timeout, or a little before that";
    return error;
  }
};

// libpq returns the beginning of a copy again and again, without reading anything in between.
TEST_F(PostgresPeer, CopyIsRejected) {
  for (const char type : {'G', 'H', 'W'}) {
    const auto error = error_of_answer(parsed_and_bound + message(type, std::string(3, '\0')));
    ASSERT_TRUE(error) << type;
    EXPECT_EQ(error->code(), ErrorCode::internal) << type;
  }
}

TEST_F(PostgresPeer, EndlessReplyIsCutOff) {
  const auto error = error_of_answer(message('N', std::string("Mhello\0", 7) + std::string(16'000, 'x') + '\0' + '\0'),
                                     Then::repeat_forever);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::internal);
}

TEST_F(PostgresPeer, GarbageIsRejected) {
  for (const std::string& garbage : {std::string("HTTP/1.1 400 Bad Request\r\n\r\n"), std::string(100, '\0')}) {
    EXPECT_TRUE(error_of_answer(garbage, Then::hang_up));
  }
}

// A notice could contain terminal escapes, and libpq prints notices unless told otherwise.
TEST_F(PostgresPeer, NoticeWhileConnectingIsNotPrinted) {
  const auto notice = message('N', std::string("SWARNING") + '\0' + "M\x1b]0;title\a" + '\0' + '\0');
  const FakeServer server({.greeting = message('R', number(0)) + notice + message('Z', "I"), .then = Then::hang_up});
  const FakeServer silent({.completes_handshake = false});
  for (const auto& hosts : {host_of(server), host_of(silent) + "," + host_of(server)}) {
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(testing::error_of([&] { (void)open(url_of(hosts)).is_locked("key"); }));
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << hosts;
  }
}

}  // namespace
}  // namespace syncguard
