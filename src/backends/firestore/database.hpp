// A Firestore database, as far as locks need one: reads, and one atomic Commit whose writes depend on what was read.
#pragma once

#include "backends/firestore/channel.hpp"
#include "backends/firestore/documents.hpp"

#include <syncguard/firestore.hpp>

#include <mutex>
#include <optional>
#include <vector>

namespace syncguard::firestore {

class Database {
 public:
  Database(std::shared_ptr<Channel> channel, Names names, const FirestoreOptions& options, Log log);

  [[nodiscard]] const Names& names() const noexcept { return names_; }
  [[nodiscard]] Timestamp now() const { return clock_(); }

  // The documents of these names, in this order; nothing for one that is not there. Each read is one RPC.
  asio::awaitable<std::vector<std::optional<wire::Document>>> read(std::vector<std::string> names, CallLimits limits);
  // All locks that have this id: more than one only if somebody damaged the collection.
  asio::awaitable<std::vector<wire::Document>> find(const LockId& id, CallLimits limits);
  // All of the writes or none. False: a document is no longer what it was when it was read.
  asio::awaitable<bool> commit(std::vector<wire::Write> writes, CallLimits limits);

  // How far this host's clock is ahead of Firestore's, by the latest answer.
  [[nodiscard]] std::optional<std::chrono::milliseconds> clock_skew() const noexcept;
  enum class Purpose { grant, extend };
  // Throws LockError(service_unavailable) if the clock is too far off for that.
  void expect_good_clock(Purpose purpose) const;

 private:
  // With the server's time in an answer.
  void compare_clocks(std::chrono::steady_clock::time_point sent_at, const wire::Timestamp& server_time);

  const std::shared_ptr<Channel> channel_;
  const Names names_;
  const std::function<Timestamp()> clock_;
  const ClockPolicy clock_policy_;
  const Log log_;

  mutable std::mutex mutex_;
  std::optional<std::chrono::milliseconds> skew_;
};

}  // namespace syncguard::firestore
