// The way to Firestore: one gRPC channel per client, and calls on it as coroutines.
#pragma once

#include "async/spawn.hpp"
#include "backends/firestore/call.hpp"

#include <syncguard/backend.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace syncguard::firestore {

// Where Firestore is, and for which of its databases.
struct Endpoint {
  // host:port. Plain text if it is an emulator's, otherwise TLS with Google's default credentials.
  std::string address;
  bool is_emulator = false;
  std::string project;
  std::string database;

  [[nodiscard]] std::string database_name() const { return "projects/" + project + "/databases/" + database; }
};

class Channel {
 public:
  explicit Channel(Endpoint endpoint);

  // projects/PROJECT/databases/DATABASE
  [[nodiscard]] const std::string& database() const noexcept { return database_name_; }

  // The channel itself, made on first use: finding credentials may take a while. gRPC connects, and connects again, by
  // itself.
  asio::awaitable<std::shared_ptr<grpc::Channel>> open(CallLimits limits);
  // Waits, as long as limits allow, for what may still be making it.
  asio::awaitable<void> close(CallLimits limits);

  using Deadline = std::chrono::steady_clock::time_point;
  // What every call must say besides its request. A deadline of Deadline::max() is none.
  void prepare(grpc::ClientContext& context, Deadline deadline) const;

  // Sends a request and waits for its answer, at most as long as limits allow: beyond them the call is cancelled, with
  // LockError(aborted) or (network_timeout) and the given effect once it was sent, or with a status that says the like.
  template <typename Request, typename Response>
  asio::awaitable<Answer<Response>> call(Method<Request, Response> method, Request request, CallLimits limits,
                                         Effect if_unanswered) {
    const auto channel = co_await open(limits);
    async::expect_no_stop(limits.stop);
    if (limits.deadline <= std::chrono::steady_clock::now()) {
      throw LockError(ErrorCode::network_timeout, "Firestore could not be asked in time");
    }
    if (async::this_thread_is_about_to_block()) {
      grpc::ClientContext context;
      prepare(context, limits.deadline);
      auto answer = ask(channel, method, context, request, limits.stop);
      if (answer.status.error_code() == grpc::StatusCode::CANCELLED && limits.stop.stop_requested()) {
        async::give_up(async::WakeUp::Reason::stopped, "", if_unanswered);
      }
      co_return answer;
    }
    const auto current = std::make_shared<Call<Request, Response>>(std::move(request));
    prepare(current->context, limits.deadline);
    {
      // gRPC starts threads when it likes.
      const async::SignalsBlocked blocked;
      current->start(channel, method);
    }
    const auto reason = co_await current->ended->wait(limits.deadline, limits.stop);
    if (reason == async::WakeUp::Reason::woken) co_return std::move(current->answer);
    {
      const async::SignalsBlocked blocked;
      current->context.TryCancel();
    }
    async::give_up(reason, "Firestore did not answer in time", if_unanswered);
  }

 private:
  struct Opening;

  const Endpoint endpoint_;
  const std::string database_name_;
  // By which Google finds the database; in this form also for those that have a name.
  const std::string routing_;
  std::mutex mutex_;
  std::shared_ptr<Opening> opening_;
};

}  // namespace syncguard::firestore
