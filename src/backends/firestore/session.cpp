#include "backends/firestore/session.hpp"

#include "backends/firestore/documents.hpp"
#include "backends/firestore/errors.hpp"
#include "core/expiry.hpp"
#include "os/clocks.hpp"

#include <algorithm>
#include <utility>

namespace syncguard::firestore {
namespace {

using std::chrono::milliseconds;

constexpr Method<wire::BatchGetDocumentsRequest, wire::BatchGetDocumentsResponse> batch_get_documents{
    "/google.firestore.v1.Firestore/BatchGetDocuments"};
constexpr Method<wire::RunQueryRequest, wire::RunQueryResponse> run_query{"/google.firestore.v1.Firestore/RunQuery"};
constexpr Method<wire::CommitRequest, wire::CommitResponse> commit_method{"/google.firestore.v1.Firestore/Commit"};

LockError incomplete(Effect effect) {
  return LockError(ErrorCode::internal, "incomplete reply from Firestore", effect);
}

std::string describe_skew(milliseconds skew) {
  return std::to_string(std::chrono::abs(skew).count()) + " ms " + (skew > skew.zero() ? "ahead of" : "behind");
}

}  // namespace

Session::Session(std::shared_ptr<Connection> connection, Names names, const FirestoreOptions& options, Log log)
    : connection_(std::move(connection)),
      names_(std::move(names)),
      clock_(options.clock ? options.clock : os::system_now),
      clock_policy_(options.clock_policy),
      log_(std::move(log)) {}

asio::awaitable<std::vector<std::optional<wire::Document>>> Session::read(std::vector<std::string> names,
                                                                          CallLimits limits) {
  auto request = read_request(connection_->database(), names);
  auto answer = co_await connection_->call(batch_get_documents, std::move(request), limits, Effect::none);
  if (!answer.status.ok()) throw read_error(answer.status);
  std::vector<std::optional<wire::Document>> documents(names.size());
  std::vector<bool> answered(names.size(), false);
  for (auto& response : answer.responses) {
    if (response.has_read_time()) compare_clocks(answer.sent_at, response.read_time(), Effect::none);
    const auto& name = response.has_found() ? response.found().name() : response.missing();
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] != name) continue;
      answered[i] = true;
      if (response.has_found()) documents[i] = std::move(*response.mutable_found());
      break;
    }
  }
  for (const bool known : answered) {
    // A document that is missing from the reply must not be mistaken for a free lock.
    if (!known) throw incomplete(Effect::none);
  }
  co_return documents;
}

asio::awaitable<std::vector<wire::Document>> Session::find(const LockId& id, CallLimits limits) {
  auto request = find_request(names_, id);
  co_return co_await query(std::move(request), limits);
}

asio::awaitable<std::vector<wire::Document>> Session::find_expired(Timestamp before, std::size_t limit,
                                                                   CallLimits limits) {
  auto request = expired_request(names_, before, std::min(limit, max_expired));
  co_return co_await query(std::move(request), limits);
}

asio::awaitable<std::vector<wire::Document>> Session::find_highest_counter(CallLimits limits) {
  auto request = highest_counter_request(names_);
  co_return co_await query(std::move(request), limits);
}

asio::awaitable<std::vector<wire::Document>> Session::list(std::string prefix, std::string cursor, std::size_t limit,
                                                           CallLimits limits) {
  auto request = list_request(names_, prefix, cursor, std::min(limit, max_listed));
  co_return co_await query(std::move(request), limits);
}

asio::awaitable<std::vector<wire::Document>> Session::query(wire::RunQueryRequest request, CallLimits limits) {
  auto answer = co_await connection_->call(run_query, std::move(request), limits, Effect::none);
  if (!answer.status.ok()) throw read_error(answer.status);
  std::vector<wire::Document> documents;
  for (auto& response : answer.responses) {
    if (response.has_read_time()) compare_clocks(answer.sent_at, response.read_time(), Effect::none);
    if (response.has_document()) documents.push_back(std::move(*response.mutable_document()));
  }
  co_return documents;
}

asio::awaitable<bool> Session::commit(std::vector<wire::Write> writes, CallLimits limits) {
  auto request = commit_request(connection_->database(), std::move(writes));
  const auto answer = co_await connection_->call(commit_method, std::move(request), limits, Effect::in_doubt);
  if (is_conflict(answer.status)) co_return false;
  if (!answer.status.ok()) throw commit_error(answer.status);
  if (answer.responses.size() != 1) throw incomplete(Effect::in_doubt);
  if (answer.responses[0].has_commit_time()) {
    compare_clocks(answer.sent_at, answer.responses[0].commit_time(), Effect::in_doubt);
  }
  co_return true;
}

void Session::compare_clocks(std::chrono::steady_clock::time_point sent_at, const wire::Timestamp& timestamp,
                             Effect effect) {
  const auto server_time = time_of(timestamp);
  if (!server_time) throw LockError(ErrorCode::internal, "invalid time in the reply from Firestore", effect);
  // The order matters: a delay between the two lines makes the round trip longer, but not the clock look wrong.
  const auto host_time = clock_();
  const auto round_trip = std::chrono::ceil<milliseconds>(std::chrono::steady_clock::now() - sent_at);
  milliseconds skew;
  {
    const std::lock_guard lock(mutex_);
    skew = core::clock_skew(host_time, round_trip, *server_time, skew_.value_or(milliseconds::zero()));
    skew_ = skew;
  }
  if (std::chrono::abs(skew) >= core::skew_warning) {
    log_.warn("clock-skew", "this host's clock is " + describe_skew(skew) +
                                " Firestore's; synchronize it (NTP): from 1000 ms on, locks are refused");
  }
}

std::optional<milliseconds> Session::clock_skew() const noexcept {
  const std::lock_guard lock(mutex_);
  return skew_;
}

void Session::require_synchronized_clock(Purpose purpose) const {
  const auto skew = clock_skew();
  if (!skew) return;
  const auto magnitude = std::chrono::abs(*skew);
  const bool blocked = clock_policy_ == ClockPolicy::block && purpose == Purpose::grant;
  if (magnitude < (blocked ? core::skew_limit : core::skew_beyond_tolerance)) return;
  throw LockError(ErrorCode::service_unavailable,
                  "this host's clock is " + describe_skew(*skew) +
                      " Firestore's, and it decides when locks expire: synchronize it (NTP)");
}

}  // namespace syncguard::firestore
