// Invalid input is rejected with a clear error.

#include "contract/contract.hpp"
#include "contract/parts.hpp"

namespace syncguard::testing {

const bool parts::input = true;

namespace {

TEST_P(Contract, RejectsInvalidKeys) {
  auto locks = open_client(store());
  for (const std::string& text : {std::string(), std::string(513, 'x'), std::string("a\0b", 3), std::string("\xff")}) {
    expect_error(ErrorCode::invalid_argument, [&] { (void)locks.try_acquire(text); });
    expect_error(ErrorCode::invalid_argument, [&] { (void)locks.is_locked(text); });
    expect_error(ErrorCode::invalid_argument, [&] { (void)locks.lookup(Key(text)); });
  }
}

TEST_P(Contract, RejectsInvalidLockIds) {
  auto locks = open_client(store());
  for (const std::string& text : {std::string(), std::string(21, 'x'), std::string(23, 'x'), std::string(22, '+')}) {
    expect_error(ErrorCode::invalid_argument, [&] { (void)locks.release(LockId(text)); });
  }
}

TEST_P(Contract, RejectsInvalidTtlsBeforeSending) {
  auto locks = open_client(store());
  auto lease = locks.try_acquire("held");
  ASSERT_TRUE(lease);
  for (const auto ttl : {0ms, -1ms, std::chrono::milliseconds(1'000'000'000'001)}) {
    expect_error(ErrorCode::invalid_argument, [&] { (void)locks.try_acquire("key", {.ttl = ttl}); });
    expect_error(ErrorCode::invalid_argument, [&] { (void)locks.acquire("key", {.ttl = ttl}); });
    expect_error(ErrorCode::invalid_argument, [&] { (void)locks.extend(lease->id(), ttl); });
    expect_error(ErrorCode::invalid_argument, [&] { (void)lease->extend(ttl); });
  }
  EXPECT_FALSE(store().is_stored("key"));
  EXPECT_GT(lease->remaining(), 20s);
}

TEST_P(Contract, AcceptsMaximumTtl) {
  auto locks = open_client(store());
  const auto lease = locks.try_acquire("key", {.ttl = std::chrono::milliseconds(1'000'000'000'000)});
  ASSERT_TRUE(lease);
  EXPECT_GT(lease->remaining(), std::chrono::hours(24 * 365 * 30));
}

TEST_P(Contract, RejectsInvalidWaitOptions) {
  auto locks = open_client(store());
  expect_error(ErrorCode::invalid_argument, [&] { (void)locks.acquire("key", {.wait = {.timeout = -1ms}}); });
  expect_error(ErrorCode::invalid_argument, [&] { (void)locks.acquire("key", {.wait = {.max_retries = -1}}); });
  expect_error(ErrorCode::invalid_argument, [&] { (void)locks.acquire("key", {.wait = {.retry_delay = -1ms}}); });
}

TEST_P(Contract, ErrorContextCarriesIdentifiers) {
  auto locks = open_client(store());
  const auto lease = locks.try_acquire("a telling name");
  try {
    (void)locks.acquire("a telling name", {.wait = {.timeout = 0ms}});
    FAIL();
  } catch (const LockError& error) {
    EXPECT_EQ(error.code(), ErrorCode::acquisition_timeout);
    EXPECT_EQ(error.context().key, "a telling name");
    EXPECT_TRUE(LockId::is_valid(error.context().lock_id));
    EXPECT_EQ(std::string(error.what()).find("telling"), std::string::npos);
    EXPECT_EQ(std::string(error.what()).find(error.context().lock_id), std::string::npos);
  }
}

}  // namespace
}  // namespace syncguard::testing
