// Access to a Firestore database: reads, and atomic commits that fail if a document has changed since it was read.
#pragma once

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
  [[nodiscard]] Timestamp now() const { return clock_(); }

  // Returns the documents with these names, in this order; nullopt if a document does not exist. Each read is one RPC.
  asio::awaitable<std::vector<std::optional<wire::Document>>> read(std::vector<std::string> names, CallLimits limits);
  // Returns all locks with this id. There is more than one only if the collection is damaged.
  asio::awaitable<std::vector<wire::Document>> find(const LockId& id, CallLimits limits);
  // Returns the oldest locks that expired before the given time, at most max_expired.
  static constexpr std::size_t max_expired = 50;
  asio::awaitable<std::vector<wire::Document>> find_expired(Timestamp before, std::size_t limit, CallLimits limits);
  // Returns the document with the highest counter, if there is one.
  asio::awaitable<std::vector<wire::Document>> find_highest_counter(CallLimits limits);
  // Returns locks in the order of their keys, as list_request says. At most max_listed, which fit into a reply.
  static constexpr std::size_t max_listed = 90;
  asio::awaitable<std::vector<wire::Document>> list(std::string prefix, std::string cursor, std::size_t limit,
                                                    CallLimits limits);
  // Applies all writes or none. Returns false if a document has changed since it was read.
  asio::awaitable<bool> commit(std::vector<wire::Write> writes, CallLimits limits);

  // How far this host's clock is ahead of Firestore's, according to the latest reply.
  [[nodiscard]] std::optional<std::chrono::milliseconds> clock_skew() const noexcept;
  enum class Purpose { grant, extend };
  // Throws LockError(service_unavailable) if the clock skew is too large for this purpose.
  void require_synchronized_clock(Purpose purpose) const;

 private:
  asio::awaitable<std::vector<wire::Document>> query(wire::RunQueryRequest request, CallLimits limits);
  // Compares with the server's time in a reply. Throws LockError(internal) with the given effect if that time is
  // invalid.
  void compare_clocks(std::chrono::steady_clock::time_point sent_at, const wire::Timestamp& server_time, Effect effect);

  const std::shared_ptr<Connection> connection_;
  const Names names_;
  const std::function<Timestamp()> clock_;
  const ClockPolicy clock_policy_;
  const Log log_;

  mutable std::mutex mutex_;
  std::optional<std::chrono::milliseconds> skew_;
};

}  // namespace syncguard::firestore
