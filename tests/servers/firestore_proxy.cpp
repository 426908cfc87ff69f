#include "servers/firestore_proxy.hpp"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <future>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

namespace syncguard::testing {
namespace {

struct Reply {
  grpc::Status status;
  std::vector<grpc::ByteBuffer> messages;
};

// Asks the emulator, and waits for all of its answer.
Reply forwarded(grpc::GenericStub& stub, const std::string& method, const grpc::ByteBuffer& request) {
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer owner");
  const auto call = stub.PrepareCall(&context, method, &queue);
  const auto done = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  Reply reply;
  call->StartCall(nullptr);
  if (done()) {
    call->WriteLast(request, {}, nullptr);
    done();
    for (grpc::ByteBuffer message;;) {
      call->Read(&message, nullptr);
      if (!done()) break;
      reply.messages.push_back(message);
    }
  }
  call->Finish(&reply.status, nullptr);
  done();
  queue.Shutdown();
  return reply;
}

}  // namespace

class FirestoreProxy::Service : public grpc::CallbackGenericService {
 public:
  explicit Service(const std::string& emulator)
      : stub_(grpc::CreateChannel(emulator, grpc::InsecureChannelCredentials())) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
    if (!server_) throw std::runtime_error("no gRPC server could be started");
  }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  ~Service() override {
    server_->Shutdown(std::chrono::system_clock::now());
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return running_ == 0; });
  }

  [[nodiscard]] int port() const { return port_; }

  void set_script(Script script) {
    const std::lock_guard lock(mutex_);
    script_ = std::move(script);
  }
  [[nodiscard]] int calls(const std::string& method) const {
    const std::lock_guard lock(mutex_);
    const auto found = calls_.find(method);
    return found == calls_.end() ? 0 : found->second;
  }
  [[nodiscard]] int calls() const {
    const std::lock_guard lock(mutex_);
    return std::accumulate(calls_.begin(), calls_.end(), 0, [](int sum, const auto& of) { return sum + of.second; });
  }
  [[nodiscard]] int given_up() const {
    const std::lock_guard lock(mutex_);
    return given_up_;
  }

 private:
  // One call. A thread serves it, since a script may block.
  class Handler : public grpc::ServerGenericBidiReactor {
   public:
    Handler(Service& service, std::string method) : service_(service), method_(std::move(method)) {
      StartRead(&request_);
    }

    [[nodiscard]] const std::string& method() const { return method_; }
    [[nodiscard]] const grpc::ByteBuffer& request() const { return request_; }

    void wait_until_given_up() { given_up_.get_future().wait(); }

    void answer(const Reply& reply) {
      for (const auto& message : reply.messages) {
        written_ = std::promise<void>();
        auto written = written_.get_future();
        StartWrite(&message);
        written.wait();
      }
      Finish(reply.status);
    }

   private:
    void OnReadDone(bool ok) override {
      if (!ok) {
        service_.ended();
        Finish(grpc::Status::CANCELLED);
        return;
      }
      std::thread([this] { service_.serve(*this); }).detach();
    }
    void OnWriteDone(bool /*ok*/) override { written_.set_value(); }
    void OnCancel() override { given_up_.set_value(); }
    void OnDone() override { delete this; }

    Service& service_;
    const std::string method_;
    grpc::ByteBuffer request_;
    std::promise<void> written_;
    std::promise<void> given_up_;
  };

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    const std::lock_guard lock(mutex_);
    ++running_;
    return new Handler(*this, context->method());
  }

  void serve(Handler& handler) {
    const auto method = handler.method().substr(handler.method().rfind('/') + 1);
    Script script;
    {
      const std::lock_guard lock(mutex_);
      ++calls_[method];
      script = script_;
    }
    const auto fate = method == "Listen" ? refuse(grpc::StatusCode::UNIMPLEMENTED)
                      : script           ? script(method)
                                         : forward();
    Reply reply;
    switch (fate.kind) {
      case Fate::Kind::forward:
        reply = forwarded(stub_, handler.method(), handler.request());
        break;
      case Fate::Kind::lose_reply:
        forwarded(stub_, handler.method(), handler.request());
        reply.status = fate.status;
        break;
      case Fate::Kind::refuse:
        reply.status = fate.status;
        break;
      case Fate::Kind::hang: {
        handler.wait_until_given_up();
        const std::lock_guard lock(mutex_);
        ++given_up_;
        break;
      }
    }
    handler.answer(reply);
    ended();
  }

  void ended() {
    const std::lock_guard lock(mutex_);
    --running_;
    changed_.notify_all();
  }

  grpc::GenericStub stub_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int running_ = 0;
  int given_up_ = 0;
  Script script_;
  std::map<std::string, int> calls_;
};

FirestoreProxy::FirestoreProxy(std::string emulator) : service_(std::make_unique<Service>(emulator)) {}
FirestoreProxy::~FirestoreProxy() = default;

std::string FirestoreProxy::url(const std::string& project, const std::string& more_options) const {
  return "firestore://" + project + "?emulator=127.0.0.1:" + std::to_string(service_->port()) + more_options;
}
void FirestoreProxy::set_script(Script script) { service_->set_script(std::move(script)); }
int FirestoreProxy::calls(const std::string& method) const { return service_->calls(method); }
int FirestoreProxy::calls() const { return service_->calls(); }
int FirestoreProxy::given_up() const { return service_->given_up(); }

}  // namespace syncguard::testing
