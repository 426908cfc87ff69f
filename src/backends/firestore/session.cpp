#include "backends/firestore/session.hpp"

#include "backends/firestore/documents.hpp"
#include "backends/firestore/errors.hpp"
#include "core/expiry.hpp"
#include "os/clocks.hpp"

#include <algorithm>
#include <utility>

namespace syncguard::firestore {
namespace {

constexpr Method<wire::BatchGetDocumentsRequest, wire::BatchGetDocumentsResponse> batch_get_documents{
    "/google.firestore.v1.Firestore/BatchGetDocuments"};
constexpr Method<wire::RunQueryRequest, wire::RunQueryResponse> run_query{"/google.firestore.v1.Firestore/RunQuery"};
constexpr Method<wire::RunAggregationQueryRequest, wire::RunAggregationQueryResponse> run_aggregation_query{
    "/google.firestore.v1.Firestore/RunAggregationQuery"};
constexpr Method<wire::CommitRequest, wire::CommitResponse> commit_method{"/google.firestore.v1.Firestore/Commit"};

LockError incomplete(Effect effect) {
  return LockError(ErrorCode::internal, "incomplete reply from Firestore", effect);
}

}  // namespace

Session::Session(std::shared_ptr<Connection> connection, Names names, const FirestoreOptions& options, Log log)
    : connection_(std::move(connection)),
      names_(std::move(names)),
      clock_(options.clock ? options.clock : os::system_now),
      log_(std::move(log)) {}

asio::awaitable<std::vector<std::optional<wire::Document>>> Session::read(std::vector<std::string> names,
                                                                          CallLimits limits) {
  auto request = read_request(connection_->database(), names);
  auto answer = co_await connection_->call(batch_get_documents, std::move(request), limits, Effect::none);
  const auto received_at = BootClock::now();
  if (!answer.status.ok()) throw read_error(answer.status);
  std::vector<std::optional<wire::Document>> documents(names.size());
  std::vector<bool> answered(names.size(), false);
  for (auto& response : answer.responses) {
    if (response.has_read_time()) compare_clocks(answer.sent_at, received_at, response.read_time(), Effect::none);
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

asio::awaitable<std::size_t> Session::count_expired(Timestamp before, CallLimits limits) {
  auto request = count_expired_request(names_, before);
  const auto answer = co_await connection_->call(run_aggregation_query, std::move(request), limits, Effect::none);
  if (!answer.status.ok()) throw read_error(answer.status);
  for (const auto& response : answer.responses) {
    const auto& fields = response.result().aggregate_fields();
    const auto found = fields.find("count");
    if (found != fields.end() && found->second.integer_value() >= 0) {
      co_return static_cast<std::size_t>(found->second.integer_value());
    }
  }
  throw incomplete(Effect::none);
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
  const auto received_at = BootClock::now();
  if (!answer.status.ok()) throw read_error(answer.status);
  std::vector<wire::Document> documents;
  for (auto& response : answer.responses) {
    if (response.has_read_time()) compare_clocks(answer.sent_at, received_at, response.read_time(), Effect::none);
    if (response.has_document()) documents.push_back(std::move(*response.mutable_document()));
  }
  co_return documents;
}

asio::awaitable<bool> Session::commit(std::vector<wire::Write> writes, CallLimits limits) {
  auto request = commit_request(connection_->database(), std::move(writes));
  const auto answer = co_await connection_->call(commit_method, std::move(request), limits, Effect::in_doubt);
  const auto received_at = BootClock::now();
  if (is_conflict(answer.status)) co_return false;
  if (!answer.status.ok()) throw commit_error(answer.status);
  if (answer.responses.size() != 1) throw incomplete(Effect::in_doubt);
  if (answer.responses[0].has_commit_time()) {
    compare_clocks(answer.sent_at, received_at, answer.responses[0].commit_time(), Effect::in_doubt);
  }
  co_return true;
}

void Session::compare_clocks(BootClock::time_point sent_at, BootClock::time_point received_at,
                             const wire::Timestamp& timestamp, Effect effect) {
  const auto server_time = time_of(timestamp);
  if (!server_time) throw LockError(ErrorCode::internal, "invalid time in the reply from Firestore", effect);
  {
    const std::lock_guard lock(mutex_);
    clocks_.add(sent_at, received_at, *server_time);
  }
  const auto skew = host_time().skew;
  if (skew && std::chrono::abs(skew->certain()) >= core::skew_warning) {
    log_.warn("clock-skew", "this host's clock is " + describe_skew(skew->certain()) +
                                " Firestore's; synchronize it (NTP): from 500 ms on, locks are refused");
  }
}

HostTime Session::host_time() const {
  const auto before = BootClock::now();
  const auto now = clock_();
  const auto after = BootClock::now();
  const std::lock_guard lock(mutex_);
  return {.now = now, .skew = clocks_.skew_at({.time = now, .before = before, .after = after})};
}

}  // namespace syncguard::firestore
