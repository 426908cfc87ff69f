// Access to a Firestore database: reads, and atomic commits that fail if a document has changed since it was read.
#pragma once

#include "backends/firestore/clock_skew.hpp"
#include "backends/firestore/connection.hpp"
#include "backends/firestore/documents.hpp"

#include <syncguard/firestore.hpp>

#include <mutex>
#include <optional>
#include <vector>

namespace syncguard::firestore {

class Session {
 public:
  Session(std::shared_ptr<Connection> connection, Names names, const FirestoreOptions& options, Log log);

  [[nodiscard]] const Names& names() const noexcept { return names_; }
  // This host's time, which decides about expiry.
  [[nodiscard]] Timestamp now() const { return clock_(); }
  // The same, and how far it is off.
  [[nodiscard]] HostTime host_time() const;

  // Returns the documents with these names, in this order; nullopt if a document does not exist. Each read is one RPC.
  asio::awaitable<std::vector<std::optional<wire::Document>>> read(std::vector<std::string> names, CallLimits limits);
  // Returns all locks with this id. There is more than one only if the collection is damaged.
  asio::awaitable<std::vector<wire::Document>> find(const LockId& id, CallLimits limits);
  // Returns the oldest locks that expired before the given time, at most max_expired.
  static constexpr std::size_t max_expired = 50;
  asio::awaitable<std::vector<wire::Document>> find_expired(Timestamp before, std::size_t limit, CallLimits limits);
  // Returns how many there are. Firestore counts them by its index.
  asio::awaitable<std::size_t> count_expired(Timestamp before, CallLimits limits);
  // Returns the document with the highest counter, if there is one.
  asio::awaitable<std::vector<wire::Document>> find_highest_counter(CallLimits limits);
  // Returns locks in the order of their keys, as list_request says. At most max_listed, which fit into a reply.
  static constexpr std::size_t max_listed = 90;
  asio::awaitable<std::vector<wire::Document>> list(std::string prefix, std::string cursor, std::size_t limit,
                                                    CallLimits limits);
  // Applies all writes or none. Returns false if a document has changed since it was read.
  asio::awaitable<bool> commit(std::vector<wire::Write> writes, CallLimits limits);

 private:
  asio::awaitable<std::vector<wire::Document>> query(wire::RunQueryRequest request, CallLimits limits);
  // Compares with the server's time in a reply. Throws LockError(internal) with the given effect if that time is
  // invalid.
  void compare_clocks(BootClock::time_point sent_at, BootClock::time_point received_at,
                      const wire::Timestamp& server_time, Effect effect);

  const std::shared_ptr<Connection> connection_;
  const Names names_;
  const std::function<Timestamp()> clock_;
  const Log log_;

  mutable std::mutex mutex_;
  ClockComparison clocks_;
};

}  // namespace syncguard::firestore
