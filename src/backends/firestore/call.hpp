// Calls of gRPC's, by name: on the caller's own thread, or asynchronously.
#pragma once

#include "async/thread.hpp"
#include "async/wake_up.hpp"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/client_callback.h>

#include <chrono>
#include <memory>
#include <new>
#include <stop_token>
#include <utility>
#include <vector>

namespace syncguard::firestore {

// A method by its public name. Called by name, so that no generated stub, and no name of Google's, is linked in.
template <typename Request, typename Response>
struct Method {
  const char* name;
};

template <typename Request, typename Response>
using Stub = grpc::TemplatedGenericStub<Request, Response>;

// More responses than this are no answer to anything that we ask.
constexpr std::size_t most_responses = 100;

// What came of a call: all its responses, unless status says otherwise.
template <typename Response>
struct Answer {
  grpc::Status status;
  std::vector<Response> responses;
  std::chrono::steady_clock::time_point sent_at{};
};

// Keeps a response. False if it is one too many, or memory is at its end.
template <typename Response>
bool keep(Answer<Response>& answer, Response& incoming) noexcept {
  try {
    if (answer.responses.size() == most_responses) return false;
    answer.responses.push_back(std::exchange(incoming, {}));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// Makes a call on this thread, which does all of gRPC's work for it: nobody has to be woken. Ends by the context's
// deadline or a stop, too, which the status then tells.
template <typename Request, typename Response>
Answer<Response> ask(const std::shared_ptr<grpc::Channel>& channel, Method<Request, Response> method,
                     grpc::ClientContext& context, const Request& request, const std::stop_token& stop) {
  grpc::CompletionQueue events;
  Answer<Response> answer{.status = {}, .responses = {}, .sent_at = std::chrono::steady_clock::now()};
  Response incoming;
  const std::unique_ptr<grpc::ClientAsyncReaderWriter<Request, Response>> exchange =
      Stub<Request, Response>(channel).PrepareCall(&context, method.name, &events);
  // In one piece with the request, so that it is no operation of its own.
  context.set_initial_metadata_corked(true);
  char sent{};
  char received{};
  char ended{};
  int under_way = 3;
  {
    // gRPC starts threads when it likes.
    const async::SignalsBlocked blocked;
    exchange->StartCall(nullptr);
    exchange->WriteLast(request, {}, &sent);
    exchange->Read(&incoming, &received);
    exchange->Finish(&answer.status, &ended);
  }
  const auto give_up = [&context] {
    const async::SignalsBlocked blocked;
    context.TryCancel();
  };
  const std::stop_callback cancel(stop, give_up);
  for (; under_way > 0; --under_way) {
    void* what = nullptr;
    bool ok = false;
    // With signals: whoever interrupts the program must not wait for an answer.
    events.Next(&what, &ok);
    // Whatever fails, the status says why.
    if (what != &received || !ok) continue;
    if (!keep(answer, incoming)) {
      give_up();
      continue;
    }
    exchange->Read(&incoming, &received);
    ++under_way;
  }
  return answer;
}

// A call that gRPC's threads make, and its responses. Keeps itself alive until gRPC is done with it, whoever still
// waits for that.
template <typename Request, typename Response>
class Call : public grpc::ClientBidiReactor<Request, Response>,
             public std::enable_shared_from_this<Call<Request, Response>> {
 public:
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
    if (keep(answer, incoming_)) {
      this->StartRead(&incoming_);
    } else {
      context.TryCancel();
    }
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

}  // namespace syncguard::firestore
