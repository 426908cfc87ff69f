#include "servers/firestore_proxy.hpp"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace syncguard::testing {
namespace {

namespace wire = firestore::wire;

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

// A Listen stream whose other end is the test.
class FeedableStream : public grpc::ServerGenericBidiReactor {
 public:
  explicit FeedableStream(std::function<void(FeedableStream*)> on_end) : on_end_(std::move(on_end)) {
    StartRead(&incoming_);
  }

  [[nodiscard]] std::map<std::int32_t, std::string> targets() const {
    const std::lock_guard lock(mutex_);
    return targets_;
  }
  void send(const wire::ListenResponse& response) {
    const std::lock_guard lock(mutex_);
    grpc::ByteBuffer buffer;
    bool own_buffer = false;
    grpc::GenericSerialize<grpc::ProtoBufferWriter, wire::ListenResponse>(response, &buffer, &own_buffer);
    outgoing_.push_back(std::move(buffer));
    if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
  }
  void cut() { finish({grpc::StatusCode::UNAVAILABLE, "cut"}); }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return finish(grpc::Status::OK);
    wire::ListenRequest request;
    grpc::GenericDeserialize<grpc::ProtoBufferReader, wire::ListenRequest>(&incoming_, &request);
    if (request.has_add_target()) {
      const auto target = request.add_target().target_id();
      {
        const std::lock_guard lock(mutex_);
        targets_[target] = request.add_target().documents().documents(0);
      }
      wire::ListenResponse current;
      current.mutable_target_change()->set_target_change_type(wire::TargetChange::CURRENT);
      current.mutable_target_change()->add_target_ids(target);
      send(current);
    } else {
      const std::lock_guard lock(mutex_);
      targets_.erase(request.remove_target());
    }
    StartRead(&incoming_);
  }
  void OnWriteDone(bool /*ok*/) override {
    const std::lock_guard lock(mutex_);
    outgoing_.pop_front();
    if (!outgoing_.empty()) StartWrite(&outgoing_.front());
  }
  void OnDone() override {
    on_end_(this);
    delete this;
  }
  void finish(const grpc::Status& status) {
    if (!finished_.exchange(true)) Finish(status);
  }

  const std::function<void(FeedableStream*)> on_end_;
  grpc::ByteBuffer incoming_;
  std::atomic<bool> finished_{false};
  mutable std::mutex mutex_;
  std::map<std::int32_t, std::string> targets_;
  std::deque<grpc::ByteBuffer> outgoing_;
};

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
  [[nodiscard]] std::vector<grpc::StatusCode> statuses(const std::string& method) const {
    const std::lock_guard lock(mutex_);
    const auto found = statuses_.find(method);
    return found == statuses_.end() ? std::vector<grpc::StatusCode>() : found->second;
  }
  [[nodiscard]] std::string header(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = headers_.find(name);
    return found == headers_.end() ? "" : found->second;
  }
  // Under the mutex, so that none of them ends meanwhile.
  void for_each_stream(const std::function<void(FeedableStream&)>& function) const {
    const std::lock_guard lock(mutex_);
    for (auto* stream : streams_) function(*stream);
  }

 private:
  // One call. A thread serves it, since a script may block.
  class Handler : public grpc::ServerGenericBidiReactor {
   public:
    // A fate that is given is the one; otherwise the script decides when the request has come.
    Handler(Service& service, std::string method, std::optional<Fate> fate)
        : service_(service), method_(std::move(method)), fate_(std::move(fate)) {
      StartRead(&request_);
    }

    [[nodiscard]] const std::string& method() const { return method_; }
    [[nodiscard]] const std::optional<Fate>& fate() const { return fate_; }
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
    const std::optional<Fate> fate_;
    grpc::ByteBuffer request_;
    std::promise<void> written_;
    std::promise<void> given_up_;
  };

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    const auto& method = context->method();
    Script script;
    {
      const std::lock_guard lock(mutex_);
      ++running_;
      headers_.clear();
      for (const auto& [name, value] : context->client_metadata()) {
        headers_.emplace(std::string(name.data(), name.size()), std::string(value.data(), value.size()));
      }
      script = script_;
    }
    if (!method.ends_with("/Listen")) return new Handler(*this, method, std::nullopt);
    // Asked here, because what serves it is chosen here.
    const Fate fate = script ? script("Listen") : refuse(grpc::StatusCode::UNIMPLEMENTED);
    if (fate.kind != Fate::Kind::forward) return new Handler(*this, method, fate);
    const std::lock_guard lock(mutex_);
    ++calls_["Listen"];
    auto* stream = new FeedableStream([this](FeedableStream* ended_stream) {
      {
        const std::lock_guard ended_lock(mutex_);
        streams_.erase(ended_stream);
      }
      ended();
    });
    streams_.insert(stream);
    return stream;
  }

  void serve(Handler& handler) {
    const auto method = handler.method().substr(handler.method().rfind('/') + 1);
    Script script;
    {
      const std::lock_guard lock(mutex_);
      ++calls_[method];
      script = script_;
    }
    const auto fate = handler.fate() ? *handler.fate() : script ? script(method) : forward();
    Reply reply;
    switch (fate.kind) {
      case Fate::Kind::forward:
        reply = forward_call(handler, method);
        break;
      case Fate::Kind::lose_reply:
        forward_call(handler, method);
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

  Reply forward_call(const Handler& handler, const std::string& method) {
    auto reply = forwarded(stub_, handler.method(), handler.request());
    const std::lock_guard lock(mutex_);
    statuses_[method].push_back(reply.status.error_code());
    return reply;
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
  std::map<std::string, std::vector<grpc::StatusCode>> statuses_;
  std::map<std::string, std::string> headers_;
  std::set<FeedableStream*> streams_;
};

FirestoreProxy::FirestoreProxy(std::string emulator) : service_(std::make_unique<Service>(emulator)) {}
FirestoreProxy::~FirestoreProxy() = default;

std::string FirestoreProxy::address() const { return "127.0.0.1:" + std::to_string(service_->port()); }
std::string FirestoreProxy::url(const std::string& project, const std::string& more_options) const {
  return "firestore://" + project + "?emulator=" + address() + more_options;
}
void FirestoreProxy::set_script(Script script) { service_->set_script(std::move(script)); }
int FirestoreProxy::calls(const std::string& method) const { return service_->calls(method); }
int FirestoreProxy::calls() const { return service_->calls(); }
std::vector<grpc::StatusCode> FirestoreProxy::statuses(const std::string& method) const {
  return service_->statuses(method);
}
std::string FirestoreProxy::header(const std::string& name) const { return service_->header(name); }
int FirestoreProxy::streams() const {
  int count = 0;
  service_->for_each_stream([&](FeedableStream&) { ++count; });
  return count;
}
int FirestoreProxy::awaited() const {
  int count = 0;
  service_->for_each_stream([&](FeedableStream& stream) { count += static_cast<int>(stream.targets().size()); });
  return count;
}
void FirestoreProxy::tell(
    const std::function<void(std::int32_t, const std::string&, wire::ListenResponse&)>& compose) const {
  service_->for_each_stream([&](FeedableStream& stream) {
    for (const auto& [target, document] : stream.targets()) {
      wire::ListenResponse response;
      compose(target, document, response);
      stream.send(response);
    }
  });
}
void FirestoreProxy::cut_streams() const {
  service_->for_each_stream([](FeedableStream& stream) { stream.cut(); });
}
int FirestoreProxy::given_up() const { return service_->given_up(); }

}  // namespace syncguard::testing
