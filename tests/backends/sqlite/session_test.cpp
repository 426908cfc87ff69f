// On which threads, and in which order, the steps of the SQLite backend run.

#include "backends/sqlite/session.hpp"
#include "async/spawn.hpp"
#include "simulated_disk.hpp"
#include "support/expect_error.hpp"
#include "support/sqlite_client.hpp"
#include "support/temporary_folder.hpp"

#include <asio/co_spawn.hpp>
#include <asio/io_context.hpp>
#include <asio/use_future.hpp>

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <future>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// A step that reports its thread when it begins, and ends when the test allows it.
struct Step {
  std::promise<std::thread::id> begun;
  std::promise<void> may_end;

  std::function<bool(sqlite::Store&)> function() {
    return [this](sqlite::Store&) {
      begun.set_value(std::this_thread::get_id());
      may_end.get_future().wait();
      return true;
    };
  }
};

std::function<std::thread::id(sqlite::Store&)> which_thread() {
  return [](sqlite::Store&) { return std::this_thread::get_id(); };
}

struct SqliteSession : ::testing::Test {
  TemporaryFolder folder;
  asio::io_context context;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work{context.get_executor()};
  std::thread io_thread{[this] { context.run(); }};
  std::filesystem::path path = folder.path() / "locks.db";
  // Steps share a transaction however slow the machine is.
  std::optional<sqlite::Session> session{std::in_place, path, 1h};

  ~SqliteSession() override {
    session.reset();
    work.reset();
    io_thread.join();
  }

  static CallLimits limits(std::chrono::milliseconds time = 60s) { return {{}, steady_clock::now() + time}; }
  template <typename Result>
  Result block_on(std::function<Result(sqlite::Store&)> step, CallLimits within = limits()) {
    within.blocking_thread = std::this_thread::get_id();
    return async::run_blocking<Result>(context.get_executor(), session->run(std::move(step), within));
  }
  template <typename Result>
  std::future<Result> begin(std::function<Result(sqlite::Store&)> step, CallLimits within = limits()) {
    // Started on this thread, so that the step is in the queue when this function returns.
    const asio::any_io_executor executor = context.get_executor();
    return asio::co_spawn(asio::any_io_executor(async::InlineExecutor(executor)), session->run(std::move(step), within),
                          asio::use_future);
  }
};

TEST_F(SqliteSession, BlockingCallerRunsItsStepAndAsynchronousCallerDoesNot) {
  EXPECT_EQ(block_on(which_thread()), std::this_thread::get_id());
  const auto other = begin(which_thread()).get();
  EXPECT_NE(other, std::this_thread::get_id());
  EXPECT_NE(other, io_thread.get_id());
}

TEST_F(SqliteSession, StepsRunOneAtATimeInOrder) {
  Step first;
  auto under_way = begin(first.function());
  first.begun.get_future().wait();
  std::vector<int> order;
  auto second = begin(std::function<bool(sqlite::Store&)>([&](sqlite::Store&) {
    order.push_back(2);
    return true;
  }));
  // A blocking caller also waits for its turn.
  std::thread ends_first([&] { first.may_end.set_value(); });
  EXPECT_TRUE(block_on(std::function<bool(sqlite::Store&)>([&](sqlite::Store&) {
    order.push_back(3);
    return true;
  })));
  ends_first.join();
  EXPECT_TRUE(under_way.get());
  EXPECT_TRUE(second.get());
  EXPECT_EQ(order, (std::vector{2, 3}));
}

TEST_F(SqliteSession, StepAddedDuringBlockingStepRunsAfterIt) {
  Step first;
  auto blocking = std::async(std::launch::async, [&] { return block_on(first.function()); });
  first.begun.get_future().wait();
  auto second = begin(which_thread());
  EXPECT_EQ(second.wait_for(20ms), std::future_status::timeout);
  first.may_end.set_value();
  EXPECT_TRUE(blocking.get());
  (void)second.get();
}

TEST_F(SqliteSession, StepBehindBlockingStepTimesOut) {
  Step first;
  auto blocking = std::async(std::launch::async, [&] { return block_on(first.function()); });
  first.begun.get_future().wait();
  const auto error = error_of([&] { (void)begin(which_thread(), limits(20ms)).get(); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::network_timeout);
  EXPECT_FALSE(error->in_doubt()) << "the step had not begun";
  first.may_end.set_value();
  EXPECT_TRUE(blocking.get());
}

TEST_F(SqliteSession, CloseWaitsForBlockingStepAndQueuedSteps) {
  Step first;
  auto blocking = std::async(std::launch::async, [&] { return block_on(first.function()); });
  first.begun.get_future().wait();
  auto queued = begin(which_thread());
  const CallLimits within = limits();
  auto closed = asio::co_spawn(context, session->close(within), asio::use_future);
  EXPECT_EQ(closed.wait_for(20ms), std::future_status::timeout);
  first.may_end.set_value();
  closed.get();
  EXPECT_TRUE(blocking.get());
  EXPECT_EQ(queued.wait_for(0s), std::future_status::ready);
}

TEST_F(SqliteSession, FailedStepDoesNotBlockTheNext) {
  const std::function<bool(sqlite::Store&)> failing = [](sqlite::Store&) -> bool {
    throw std::runtime_error("not a LockError");
  };
  EXPECT_THROW((void)block_on(failing), std::runtime_error);
  EXPECT_EQ(block_on(which_thread()), std::this_thread::get_id());
}

// ---------------------------------------------------------------------------------------------------------------------
// Steps that share a transaction

struct SqliteGroup : SqliteSession {
  ~SqliteGroup() override { session.reset(); }

  static std::function<AcquireReply(sqlite::Store&)> acquire(const Key& key, const LockId& id = LockId::generate(),
                                                             std::chrono::milliseconds ttl = 30s) {
    return [=](sqlite::Store& store) { return store.acquire({key, id, ttl}); };
  }
  static std::function<ReleaseReply(sqlite::Store&)> release(const LockId& id) {
    return [=](sqlite::Store& store) { return store.release(id); };
  }
  // Calls the function while the session is busy: all steps that it adds wait at the same time.
  template <typename Function>
  void while_busy(Function function) {
    Step first;
    auto under_way = begin(first.function());
    first.begun.get_future().wait();
    function();
    first.may_end.set_value();
    under_way.get();
  }
  template <typename Reply>
  static std::vector<Reply> get(std::vector<std::future<Reply>>& futures) {
    std::vector<Reply> replies;
    for (auto& future : futures) replies.push_back(future.get());
    futures.clear();
    return replies;
  }
  std::string holders() {
    return SqliteClient{path}("SELECT group_concat(key, ' ') FROM (SELECT key FROM syncguard_locks ORDER BY key)");
  }

  SimulatedDisk disk{std::filesystem::canonical(folder.path())};
};

TEST_F(SqliteGroup, WaitingStepsShareOneSync) {
  (void)block_on(acquire("first"));  // makes the files
  const auto before = disk.sync_count();
  std::vector<LockId> ids;
  std::vector<std::future<AcquireReply>> acquired;
  while_busy([&] {
    for (int i = 0; i < 64; ++i) {
      acquired.push_back(begin(acquire("key" + std::to_string(i), ids.emplace_back(LockId::generate()))));
    }
  });
  for (const auto& reply : get(acquired)) EXPECT_TRUE(std::holds_alternative<Granted>(reply));
  EXPECT_EQ(disk.sync_count(), before + 1);

  std::vector<std::future<ReleaseReply>> released;
  while_busy([&] {
    for (const auto& id : ids) released.push_back(begin(release(id)));
  });
  for (const auto& reply : get(released)) EXPECT_TRUE(std::holds_alternative<Released>(reply));
  EXPECT_EQ(disk.sync_count(), before + 1) << "releases need no sync";
  EXPECT_EQ(holders(), "first");
}

TEST_F(SqliteGroup, EachStepHasItsOwnOutcome) {
  (void)block_on(acquire("held"));
  SqliteClient{path}(
      "INSERT INTO syncguard_fence_counters (fence_key, fence) VALUES ('fence:used up', 900000000000000)");
  const auto before = disk.sync_count();
  const auto id = LockId::generate();
  std::vector<std::future<AcquireReply>> acquired;
  std::future<ReleaseReply> missing;
  std::future<bool> failing;
  while_busy([&] {
    acquired.push_back(begin(acquire("a", id)));
    acquired.push_back(begin(acquire("a")));
    acquired.push_back(begin(acquire("held")));
    acquired.push_back(begin(acquire("used up")));
    missing = begin(release(LockId::generate()));
    failing = begin(std::function<bool(sqlite::Store&)>([](sqlite::Store&) -> bool { throw std::runtime_error(""); }));
    acquired.push_back(begin(acquire("a", id)));
    acquired.push_back(begin(acquire("b")));
  });
  const auto granted = std::get<Granted>(acquired[0].get());
  EXPECT_TRUE(std::holds_alternative<Contended>(acquired[1].get()));
  EXPECT_TRUE(std::holds_alternative<Contended>(acquired[2].get()));
  const auto error = error_of([&] { (void)acquired[3].get(); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::internal);
  EXPECT_FALSE(error->in_doubt());
  EXPECT_EQ(std::get<Missing>(missing.get()), Missing::not_found);
  EXPECT_THROW((void)failing.get(), std::runtime_error);
  EXPECT_EQ(std::get<Granted>(acquired[4].get()).fence, granted.fence) << "the same request again";
  EXPECT_TRUE(std::holds_alternative<Granted>(acquired[5].get()));
  EXPECT_EQ(disk.sync_count(), before + 1);
  EXPECT_EQ(holders(), "a b held");
}

TEST_F(SqliteGroup, FailedCommitIsInDoubtForAll) {
  (void)block_on(acquire("first"));
  std::vector<std::future<AcquireReply>> acquired;
  std::future<bool> last;
  while_busy([&] {
    for (const char* key : {"a", "b", "c"}) acquired.push_back(begin(acquire(key)));
    last = begin(std::function<bool(sqlite::Store&)>([&](sqlite::Store&) {
      disk.fail_next_write(SQLITE_IOERR_WRITE);
      return true;
    }));
  });
  for (auto& reply : acquired) {
    const auto error = error_of([&] { (void)reply.get(); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::service_unavailable);
    EXPECT_TRUE(error->in_doubt());
  }
  EXPECT_TRUE(error_of([&] { (void)last.get(); }));
  EXPECT_EQ(holders(), "first");
  EXPECT_TRUE(std::holds_alternative<Granted>(begin(acquire("a")).get())) << "the session still works";
}

TEST_F(SqliteGroup, StepsRunAgainSinglyAfterTransactionWasRolledBack) {
  (void)block_on(acquire("first"));
  session.reset();
  // More pages than those that the first step reads.
  SqliteClient{path}(
      "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 3000) "
      "INSERT INTO syncguard_locks SELECT 'lock' || x, 'id' || x, 0, 0, '000000000000001', 'lock' || x, NULL, NULL "
      "FROM c");
  session.emplace(path, 1h);
  std::array<int, 3> runs{};
  std::vector<std::future<AcquireReply>> acquired;
  const auto before = disk.sync_count();
  while_busy([&] {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const auto step = acquire("key" + std::to_string(i));
      acquired.push_back(begin(std::function<AcquireReply(sqlite::Store&)>([&, i, step](sqlite::Store& store) {
        if (++runs[i] == 1 && i == 1) {
          disk.fail_next_read(SQLITE_IOERR_READ);
          (void)store.find_live(Key("lock2500"));
        }
        return step(store);
      })));
    }
  });
  for (const auto& reply : get(acquired)) EXPECT_TRUE(std::holds_alternative<Granted>(reply));
  EXPECT_EQ(runs, (std::array{2, 2, 1}));
  EXPECT_GE(disk.sync_count(), before + 3) << "a transaction for each";
  EXPECT_EQ(SqliteClient{path}("SELECT count(*) FROM syncguard_locks WHERE key LIKE 'key%'"), "3");
}

TEST_F(SqliteGroup, StepThatFailsHalfwayLeavesNothing) {
  (void)block_on(acquire("0"));
  // A table that does not take one of the keys. The fence counter is stored before.
  SqliteClient{path}(
      "DROP TABLE syncguard_locks; CREATE TABLE syncguard_locks (key TEXT NOT NULL PRIMARY KEY CHECK (key <> "
      "'refused'),"
      " lock_id TEXT NOT NULL, expires_at_ms INTEGER NOT NULL, acquired_at_ms INTEGER NOT NULL, fence TEXT NOT NULL,"
      " user_key TEXT NOT NULL, renewed_at_ms INTEGER, holder TEXT) STRICT");
  std::vector<std::future<AcquireReply>> acquired;
  while_busy([&] {
    for (const char* key : {"1", "refused", "2"}) acquired.push_back(begin(acquire(key)));
  });
  EXPECT_TRUE(std::holds_alternative<Granted>(acquired[0].get()));
  const auto error = error_of([&] { (void)acquired[1].get(); });
  ASSERT_TRUE(error);
  EXPECT_FALSE(error->in_doubt());
  EXPECT_TRUE(std::holds_alternative<Granted>(acquired[2].get()));
  EXPECT_EQ(holders(), "1 2");
  EXPECT_EQ(SqliteClient{path}("SELECT group_concat(fence_key) FROM syncguard_fence_counters"),
            "fence:0,fence:1,fence:2");
}

TEST_F(SqliteGroup, ReadsDoNotWaitForOtherProcesses) {
  (void)block_on(acquire("key"));
  SqliteClient writer(path);
  writer("BEGIN IMMEDIATE");
  std::future<bool> read;
  std::future<AcquireReply> write;
  while_busy([&] {
    read = begin(std::function<bool(sqlite::Store&)>(
        [](sqlite::Store& store) { return store.find_live(Key("key")).has_value(); }));
    write = begin(acquire("other"));
  });
  EXPECT_TRUE(read.get());
  EXPECT_EQ(write.wait_for(0s), std::future_status::timeout);
  writer("COMMIT");
  EXPECT_TRUE(std::holds_alternative<Granted>(write.get()));
}

TEST_F(SqliteGroup, StepThatNeedsSyncGetsIt) {
  const auto short_lock = LockId::generate();
  const auto long_lock = LockId::generate();
  (void)block_on(acquire("short", short_lock));
  (void)block_on(acquire("long", long_lock, 10min));
  const auto before = disk.sync_count();
  std::vector<std::future<ReleaseReply>> released;
  std::future<AcquireReply> acquired;
  while_busy([&] {
    released.push_back(begin(release(short_lock)));
    released.push_back(begin(release(LockId::generate())));
    released.push_back(begin(release(long_lock)));
    acquired = begin(acquire("short"));
  });
  EXPECT_TRUE(std::holds_alternative<Released>(released[0].get()));
  EXPECT_TRUE(std::holds_alternative<Missing>(released[1].get()));
  EXPECT_TRUE(std::holds_alternative<Released>(released[2].get()));
  EXPECT_TRUE(std::holds_alternative<Granted>(acquired.get()));
  EXPECT_EQ(disk.sync_count(), before + 1) << "of the third and the fourth step together";
  EXPECT_EQ(holders(), "short");
}

TEST_F(SqliteGroup, StoppedStepHasNoEffect) {
  (void)block_on(acquire("first"));
  std::stop_source stop;
  std::promise<void> stopped;
  std::vector<std::future<AcquireReply>> acquired;
  while_busy([&] {
    acquired.push_back(begin(acquire("a")));
    acquired.push_back(begin(std::function<AcquireReply(sqlite::Store&)>([&](sqlite::Store& store) {
      stop.request_stop();
      stopped.get_future().wait();
      return acquire("b")(store);
    })));
    auto within = limits();
    within.stop = stop.get_token();
    acquired.push_back(begin(acquire("c"), within));
    acquired.push_back(begin(acquire("d")));
  });
  const auto error = error_of([&] { (void)acquired[2].get(); });
  stopped.set_value();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::aborted);
  EXPECT_FALSE(error->in_doubt());
  for (const int i : {0, 1, 3}) {
    EXPECT_TRUE(std::holds_alternative<Granted>(acquired[static_cast<std::size_t>(i)].get()));
  }
  EXPECT_EQ(holders(), "a b d first");
}

TEST_F(SqliteGroup, NothingIsReportedBeforeTheCommit) {
  (void)block_on(acquire("first"));
  std::shared_future<AcquireReply> first;
  std::future<AcquireReply> second;
  while_busy([&] {
    first = begin(acquire("a")).share();
    second = begin(std::function<AcquireReply(sqlite::Store&)>([this, first](sqlite::Store& store) {
      EXPECT_EQ(holders(), "first");
      EXPECT_EQ(first.wait_for(0s), std::future_status::timeout);
      return acquire("b")(store);
    }));
  });
  EXPECT_TRUE(std::holds_alternative<Granted>(first.get()));
  EXPECT_TRUE(std::holds_alternative<Granted>(second.get()));
  EXPECT_EQ(holders(), "a b first");
}

TEST_F(SqliteGroup, WaitersAreNotifiedAfterTheCommit) {
  const auto id = LockId::generate();
  (void)block_on(acquire("key", id));
  const auto waiter = LockId::generate();
  (void)block_on(std::function<bool(sqlite::Store&)>([&](sqlite::Store& store) {
    (void)store.join("key", {waiter});
    return true;
  }));
  const auto wake_file = sqlite::WakeFiles(sqlite::Folder(path)).prepare(sqlite::WakeFiles::number_for(waiter.view()));
  ASSERT_TRUE(wake_file);
  const auto notified = [&] { return std::filesystem::file_size(*wake_file) > 0; };
  bool too_early = true;
  std::vector<std::future<ReleaseReply>> released;
  while_busy([&] {
    released.push_back(begin(release(id)));
    released.push_back(begin(std::function<ReleaseReply(sqlite::Store&)>([&](sqlite::Store& store) {
      too_early = notified();
      return store.release(LockId::generate());
    })));
  });
  EXPECT_TRUE(std::holds_alternative<Released>(released[0].get()));
  EXPECT_TRUE(std::holds_alternative<Missing>(released[1].get()));
  EXPECT_FALSE(too_early);
  EXPECT_TRUE(notified());
}

TEST_F(SqliteGroup, LongTransactionTakesNoMoreSteps) {
  session.emplace(path);  // with the default limit
  (void)block_on(acquire("first"));
  const auto before = disk.sync_count();
  std::vector<std::future<AcquireReply>> acquired;
  while_busy([&] {
    acquired.push_back(begin(acquire("a")));
    acquired.push_back(begin(std::function<AcquireReply(sqlite::Store&)>([&](sqlite::Store& store) {
      std::this_thread::sleep_for(6ms);
      return acquire("b")(store);
    })));
    acquired.push_back(begin(acquire("c")));
  });
  for (const auto& reply : get(acquired)) EXPECT_TRUE(std::holds_alternative<Granted>(reply));
  EXPECT_GE(disk.sync_count(), before + 2);
}

}  // namespace
}  // namespace syncguard::testing
