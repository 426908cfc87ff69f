#include "backends/firestore/database.hpp"

#include "async/system_now.hpp"
#include "backends/firestore/requests.hpp"
#include "backends/firestore/server_error.hpp"
#include "core/clock_skew.hpp"

#include <utility>

namespace syncguard::firestore {
namespace {

using std::chrono::milliseconds;

constexpr Method<wire::BatchGetDocumentsRequest, wire::BatchGetDocumentsResponse> batch_get_documents{
    "/google.firestore.v1.Firestore/BatchGetDocuments"};
constexpr Method<wire::RunQueryRequest, wire::RunQueryResponse> run_query{"/google.firestore.v1.Firestore/RunQuery"};
constexpr Method<wire::CommitRequest, wire::CommitResponse> commit_method{"/google.firestore.v1.Firestore/Commit"};

LockError incomplete(Effect effect) {
  return LockError(ErrorCode::internal, "Firestore did not answer everything", effect);
}

std::string in_words(milliseconds skew) {
  return std::to_string(std::chrono::abs(skew).count()) + " ms " + (skew > skew.zero() ? "ahead of" : "behind");
}

}  // namespace

Database::Database(std::shared_ptr<Channel> channel, Names names, const FirestoreOptions& options, Log log)
    : channel_(std::move(channel)),
      names_(std::move(names)),
      clock_(options.clock ? options.clock : async::system_now),
      clock_policy_(options.clock_policy),
      log_(std::move(log)) {}

asio::awaitable<std::vector<std::optional<wire::Document>>> Database::read(std::vector<std::string> names,
                                                                           CallLimits limits) {
  auto request = read_request(channel_->database(), names);
  auto answer = co_await channel_->call(batch_get_documents, std::move(request), limits, Effect::none);
  if (!answer.status.ok()) throw read_error(answer.status);
  std::vector<std::optional<wire::Document>> documents(names.size());
  std::vector<bool> answered(names.size(), false);
  for (auto& response : answer.responses) {
    if (response.has_read_time()) compare_clocks(answer.sent_at, response.read_time());
    const auto& name = response.has_found() ? response.found().name() : response.missing();
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] != name) continue;
      answered[i] = true;
      if (response.has_found()) documents[i] = std::move(*response.mutable_found());
      break;
    }
  }
  for (const bool known : answered) {
    // An absence that was not said would be taken for a free lock.
    if (!known) throw incomplete(Effect::none);
  }
  co_return documents;
}

asio::awaitable<std::vector<wire::Document>> Database::find(const LockId& id, CallLimits limits) {
  auto request = find_request(names_, id);
  auto answer = co_await channel_->call(run_query, std::move(request), limits, Effect::none);
  if (!answer.status.ok()) throw read_error(answer.status);
  std::vector<wire::Document> documents;
  for (auto& response : answer.responses) {
    if (response.has_read_time()) compare_clocks(answer.sent_at, response.read_time());
    if (response.has_document()) documents.push_back(std::move(*response.mutable_document()));
  }
  co_return documents;
}

asio::awaitable<bool> Database::commit(std::vector<wire::Write> writes, CallLimits limits) {
  auto request = commit_request(channel_->database(), std::move(writes));
  const auto answer = co_await channel_->call(commit_method, std::move(request), limits, Effect::in_doubt);
  if (is_lost_race(answer.status)) co_return false;
  if (!answer.status.ok()) throw commit_error(answer.status);
  if (answer.responses.size() != 1) throw incomplete(Effect::in_doubt);
  if (answer.responses[0].has_commit_time()) compare_clocks(answer.sent_at, answer.responses[0].commit_time());
  co_return true;
}

void Database::compare_clocks(std::chrono::steady_clock::time_point sent_at, const wire::Timestamp& server_time) {
  // In this order: whatever comes between the two makes the answer look slower, and not the clock look wrong.
  const auto host_time = clock_();
  const auto round_trip = std::chrono::ceil<milliseconds>(std::chrono::steady_clock::now() - sent_at);
  milliseconds skew;
  {
    const std::lock_guard lock(mutex_);
    skew = core::clock_skew(host_time, round_trip, time_of(server_time), skew_.value_or(milliseconds::zero()));
    skew_ = skew;
  }
  if (std::chrono::abs(skew) >= core::skew_to_warn_of) {
    log_.warn("clock-skew", "this host's clock is " + in_words(skew) +
                                " Firestore's; synchronise it (NTP): from 1000 ms on, locks are refused");
  }
}

std::optional<milliseconds> Database::clock_skew() const noexcept {
  const std::lock_guard lock(mutex_);
  return skew_;
}

void Database::expect_good_clock(Purpose purpose) const {
  const auto skew = clock_skew();
  if (!skew) return;
  const auto off_by = std::chrono::abs(*skew);
  const bool blocked = clock_policy_ == ClockPolicy::block && purpose == Purpose::grant;
  if (off_by < (blocked ? core::skew_to_act_on : core::skew_beyond_tolerance)) return;
  throw LockError(ErrorCode::service_unavailable,
                  "this host's clock is " + in_words(*skew) +
                      " Firestore's, and it decides when locks expire: synchronise it (NTP)");
}

}  // namespace syncguard::firestore
