// The connection to Firestore: one gRPC channel per client, with calls as coroutines.
#pragma once

#include "async/spawn.hpp"
#include "backends/firestore/call.hpp"
#include "backends/firestore/errors.hpp"

#include <syncguard/backend.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace syncguard::firestore {

// The address of Firestore, and the database.
struct Endpoint {
  // host:port. An emulator is used in plain text, Firestore over TLS with credentials.
  std::string address;
  bool is_emulator = false;
  std::string project;
  std::string database;
  // The contents of a credentials file. If empty: Google's default credentials.
  std::string credentials;
  // The host outside googleapis.com, if any, that may receive tokens.
  std::string allow_endpoint;

  [[nodiscard]] std::string database_name() const { return "projects/" + project + "/databases/" + database; }
};

// The gRPC channel, and the metadata that calls on it need.
struct OpenChannel {
  std::shared_ptr<grpc::Channel> channel;
  // The project that is billed, if it is not the account's own; may be empty.
  std::string quota_project;
};

class Connection {
 public:
  // Until the first reply, operations may take connect_timeout longer.
  Connection(Endpoint endpoint, std::chrono::milliseconds connect_timeout);

  // projects/PROJECT/databases/DATABASE
  [[nodiscard]] const std::string& database() const noexcept { return database_name_; }

  // The limits of a whole operation: extended by connect_timeout until the server has replied for the first time.
  [[nodiscard]] CallLimits with_time_to_connect(CallLimits limits) const;

  // Returns the channel, which is created on first use. Finding credentials may take a while. gRPC connects and
  // reconnects automatically.
  asio::awaitable<OpenChannel> open(CallLimits limits);
  // Whether gRPC is connected now.
  [[nodiscard]] bool is_connected() noexcept;
  // Waits within the limits for a thread that may still be creating the channel.
  asio::awaitable<void> close(CallLimits limits);

  using Deadline = std::chrono::steady_clock::time_point;
  // Sets the metadata and the deadline of a call. Deadline::max() means no deadline.
  void prepare(grpc::ClientContext& context, const OpenChannel& channel, Deadline deadline) const;

  // Sends a request and waits for its reply within the limits. Beyond them the call is canceled. It then throws
  // LockError(aborted) or LockError(network_timeout), with the given effect if the request was sent, or returns an
  // answer with a corresponding status.
  template <typename Request, typename Response>
  asio::awaitable<Answer<Response>> call(Method<Request, Response> method, Request request, CallLimits limits,
                                         Effect if_unanswered) {
    const auto channel = co_await open(limits);
    async::expect_no_stop(limits.stop);
    if (limits.deadline <= std::chrono::steady_clock::now()) {
      throw LockError(ErrorCode::network_timeout, "timed out before the request to Firestore was sent");
    }
    if (limits.may_block()) {
      grpc::ClientContext context;
      prepare(context, channel, limits.deadline);
      auto answer = ask(channel.channel, method, context, request, limits.stop);
      if (answer.status.error_code() == grpc::StatusCode::CANCELLED && limits.stop.stop_requested()) {
        async::throw_ended(async::WaitResult::stopped, "", if_unanswered);
      }
      if (is_token_failure(answer.status, context)) throw token_error(answer.status);
      if (answer.is_too_large) throw too_large(if_unanswered);
      if (answer.status.ok()) was_answered_ = true;
      co_return answer;
    }
    const auto current = std::make_shared<Call<Request, Response>>(std::move(request));
    prepare(current->context, channel, limits.deadline);
    {
      // gRPC may start threads at any time. They inherit the signal mask.
      const os::SignalsBlocked blocked;
      current->start(channel.channel, method);
    }
    const auto result = co_await current->ended.wait(limits.deadline, limits.stop);
    if (result == async::WaitResult::set) {
      if (is_token_failure(current->answer.status, current->context)) throw token_error(current->answer.status);
      if (current->answer.is_too_large) throw too_large(if_unanswered);
      if (current->answer.status.ok()) was_answered_ = true;
      co_return std::move(current->answer);
    }
    {
      const os::SignalsBlocked blocked;
      current->context.TryCancel();
    }
    async::throw_ended(result, "timed out waiting for Firestore", if_unanswered);
  }

 private:
  const Endpoint endpoint_;
  const std::chrono::milliseconds connect_timeout_;
  std::atomic<bool> was_answered_{false};
  const std::string database_name_;
  // The routing header by which Google finds the database, in the form that also works for named databases.
  const std::string routing_;
  std::mutex mutex_;
  // Shared with the thread that creates the channel, which may finish after every caller has given up.
  std::optional<async::Promise<OpenChannel>> opening_;
};

}  // namespace syncguard::firestore
