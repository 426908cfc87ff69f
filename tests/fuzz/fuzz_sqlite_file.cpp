// Any damage to a database file: every operation ends with a value or a LockError, and in time. The input is a list of
// patches (a 16-bit offset and a byte each) to a database that holds a lock and waiters, so that mutations reach the
// data behind the file's header.

#include "support/temporary_folder.hpp"

#include <syncguard/syncguard.hpp>

#include <sqlite3.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace {

namespace sg = syncguard;
using namespace std::chrono_literals;

std::string intact_database(const std::filesystem::path& folder) {
  const auto file = folder / "intact.db";
  {
    auto locks = sg::open("sqlite:" + file.string());
    (void)locks.acquire("held", {.ttl = 24h}).detach();
  }
  sqlite3* database = nullptr;
  const bool opened = sqlite3_open(file.c_str(), &database) == SQLITE_OK;
  const bool waited =
      opened && sqlite3_exec(database,
                             "INSERT INTO syncguard_locks_waiters (key, waiter, place, seen_at_ms, turn_until_ms)"
                             " VALUES ('free', 'AAAAAAAAAAAAAAAAAAAAAA', 1, 1, 9000000000000),"
                             " ('held', 'BAAAAAAAAAAAAAAAAAAAAA', 2, 1, NULL);"
                             "PRAGMA wal_checkpoint(TRUNCATE)",
                             nullptr, nullptr, nullptr) == SQLITE_OK;
  sqlite3_close(database);
  if (!waited) std::abort();
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const sg::testing::TemporaryFolder folder;
  static const std::string intact = intact_database(folder.path());
  std::string bytes = intact;
  for (std::size_t i = 0; i + 2 < size; i += 3) {
    bytes[(std::size_t{data[i]} * 256 + data[i + 1]) % bytes.size()] = static_cast<char>(data[i + 2]);
  }
  const auto file = folder.path() / "patched.db";
  for (const char* suffix : {"-wal", "-shm"}) std::filesystem::remove(file.string() + suffix);
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;

  const auto begin = std::chrono::steady_clock::now();
  const auto attempt = [](auto operation) {
    try {
      operation();
    } catch (const sg::LockError&) {  // an expected outcome
    }
  };
  attempt([&] {
    auto locks = sg::open("sqlite:" + file.string() + "?operation_timeout=200ms");
    attempt([&] { (void)locks.is_locked("held"); });
    attempt([&] { (void)locks.lookup(sg::Key{"held"}); });
    attempt([&] { (void)locks.admin().list(); });
    attempt([&] { (void)locks.admin().inspect("held"); });
    attempt([&] { (void)locks.admin().clean_up({.mode = sg::CleanupRequest::Mode::count}); });
    attempt([&] { (void)locks.try_acquire("held"); });
    attempt([&] { (void)locks.try_acquire("free"); });
    attempt([&] { (void)locks.acquire("held", {.wait = {.timeout = 2ms}}); });
  });
  if (std::chrono::steady_clock::now() - begin > 10s) std::abort();
  return 0;
}
