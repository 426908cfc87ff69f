// gRPC calls by method name: on the caller's own thread, or asynchronously.
#pragma once

#include "async/event.hpp"
#include "os/threads.hpp"

#include <syncguard/boot_clock.hpp>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/client_callback.h>

#include <memory>
#include <new>
#include <stop_token>
#include <utility>
#include <vector>

namespace syncguard::firestore {

// A method by its public name. No generated stub is used, so no symbol of Google's API is linked in.
template <typename Request, typename Response>
struct Method {
  const char* name;
};

template <typename Request, typename Response>
using Stub = grpc::TemplatedGenericStub<Request, Response>;

// No request of this backend has a larger reply: a few documents of at most 1 MiB each.
constexpr std::size_t max_responses = 100;
constexpr std::size_t max_reply_bytes = 8 * 1024 * 1024;

// The result of a call. The responses are complete only if status is OK.
template <typename Response>
struct Answer {
  grpc::Status status;
  std::vector<Response> responses;
  BootClock::time_point sent_at{};
  std::size_t bytes = 0;
  // The reply exceeded the limits, and the call was canceled.
  bool is_too_large = false;
};

// Stores a response. Returns false if there are too many, or if memory is exhausted.
template <typename Response>
bool keep(Answer<Response>& answer, Response& incoming) noexcept {
  try {
    answer.bytes += incoming.ByteSizeLong();
    answer.is_too_large = answer.responses.size() == max_responses || answer.bytes > max_reply_bytes;
    if (answer.is_too_large) return false;
    answer.responses.push_back(std::exchange(incoming, {}));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// Makes a call on this thread, which does all of gRPC's work for it, so no other thread has to be woken. Also ends at
// the context's deadline or on a stop request, with a corresponding status.
template <typename Request, typename Response>
Answer<Response> ask(const std::shared_ptr<grpc::Channel>& channel, Method<Request, Response> method,
                     grpc::ClientContext& context, const Request& request, const std::stop_token& stop) {
  grpc::CompletionQueue events;
  Answer<Response> answer{
      .status = {}, .responses = {}, .sent_at = BootClock::now(), .bytes = 0, .is_too_large = false};
  Response incoming;
  const std::unique_ptr<grpc::ClientAsyncReaderWriter<Request, Response>> exchange =
      Stub<Request, Response>(channel).PrepareCall(&context, method.name, &events);
  // Sends the metadata together with the request, so that it is not a separate operation.
  context.set_initial_metadata_corked(true);
  char sent{};
  char received{};
  char ended{};
  int pending_callbacks = 3;
  {
    // gRPC may start threads at any time. They inherit the signal mask.
    const os::SignalsBlocked blocked;
    exchange->StartCall(nullptr);
    exchange->WriteLast(request, {}, &sent);
    exchange->Read(&incoming, &received);
    exchange->Finish(&answer.status, &ended);
  }
  const auto cancel_call = [&context] {
    const os::SignalsBlocked blocked;
    context.TryCancel();
  };
  const std::stop_callback cancel(stop, cancel_call);
  for (; pending_callbacks > 0; --pending_callbacks) {
    void* what = nullptr;
    bool ok = false;
    // With signals unblocked, so that a signal handler need not wait for a reply.
    events.Next(&what, &ok);
    // If an operation failed, the final status gives the reason.
    if (what != &received || !ok) continue;
    if (!keep(answer, incoming)) {
      cancel_call();
      continue;
    }
    exchange->Read(&incoming, &received);
    ++pending_callbacks;
  }
  return answer;
}

// A call made by gRPC's threads, and its responses. Keeps itself alive until gRPC is done with it, even if no caller
// waits anymore.
template <typename Request, typename Response>
class Call : public grpc::ClientBidiReactor<Request, Response>,
             public std::enable_shared_from_this<Call<Request, Response>> {
 public:
  explicit Call(Request request) : request_(std::move(request)) {}

  grpc::ClientContext context;
  const async::Event ended;
  // Valid after ended is set.
  Answer<Response> answer;

  void start(const std::shared_ptr<grpc::Channel>& channel, Method<Request, Response> method) {
    self_ = this->shared_from_this();
    answer.sent_at = BootClock::now();
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
    ended.set();
  }

  const Request request_;
  Response incoming_;
  std::shared_ptr<Call> self_;
};

}  // namespace syncguard::firestore
