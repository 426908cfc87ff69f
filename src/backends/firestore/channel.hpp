// The way to Firestore: one gRPC channel per client, and calls on it as coroutines.
#pragma once

#include "async/thread.hpp"
#include "async/wake_up.hpp"

#include <syncguard/backend.hpp>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/client_callback.h>

#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

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

// A method by its public name. Called by name, so that no generated stub, and no name of Google's, is linked in.
template <typename Request, typename Response>
struct Method {
  const char* name;
};

template <typename Request, typename Response>
using Stub = grpc::TemplatedGenericStub<Request, Response>;

// What came of a call: all its responses, unless status says otherwise.
template <typename Response>
struct Answer {
  grpc::Status status;
  std::vector<Response> responses;
  std::chrono::steady_clock::time_point sent_at{};
};

// One request and its responses. Keeps itself alive until gRPC is done with it, whoever still waits for that.
template <typename Request, typename Response>
class Call : public grpc::ClientBidiReactor<Request, Response>,
             public std::enable_shared_from_this<Call<Request, Response>> {
 public:
  // More responses than this are no answer to anything that we ask.
  static constexpr std::size_t most_responses = 100;

  explicit Call(Request request) : request_(std::move(request)) {}

  grpc::ClientContext context;
  const std::shared_ptr<async::WakeUp> ended = std::make_shared<async::WakeUp>();
  // To be read once it has ended.
  Answer<Response> answer;

  void start(const std::shared_ptr<grpc::Channel>& channel, Method<Request, Response> method) {
    self_ = this->shared_from_this();
    answer.sent_at = std::chrono::steady_clock::now();
    Stub<Request, Response>(channel).PrepareBidiStreamingCall(&context, method.name, {}, this);
    this->StartWriteLast(&request_, {});
    this->StartRead(&incoming_);
    this->StartCall();
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    try {
      if (answer.responses.size() < most_responses) {
        answer.responses.push_back(std::exchange(incoming_, {}));
        this->StartRead(&incoming_);
        return;
      }
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): ends like an answer that is too long
    }
    context.TryCancel();
  }
  void OnDone(const grpc::Status& status) override {
    answer.status = status;
    const auto self = std::move(self_);
    ended->wake();
  }

  const Request request_;
  Response incoming_;
  std::shared_ptr<Call> self_;
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

  // What every call must say besides its request.
  void prepare(grpc::ClientContext& context) const;

  // Sends a request and waits for its answer, at most as long as limits allow: LockError(aborted) or (network_timeout)
  // beyond them, with the given effect once it was sent. The call is then cancelled.
  template <typename Request, typename Response>
  asio::awaitable<Answer<Response>> call(Method<Request, Response> method, Request request, CallLimits limits,
                                         Effect if_unanswered) {
    const auto channel = co_await open(limits);
    if (limits.stop.stop_requested()) throw LockError(ErrorCode::aborted, "a stop was requested");
    const auto left = limits.deadline - std::chrono::steady_clock::now();
    if (left <= left.zero()) throw LockError(ErrorCode::network_timeout, "Firestore could not be asked in time");
    const auto current = std::make_shared<Call<Request, Response>>(std::move(request));
    prepare(current->context);
    if (limits.deadline != limits.deadline.max()) {
      current->context.set_deadline(std::chrono::system_clock::now() + left);
    }
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
