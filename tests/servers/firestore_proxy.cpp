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
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

namespace syncguard::testing {
namespace {

namespace wire = firestore::wire;

struct RawReply {
  grpc::Status status;
  std::vector<grpc::ByteBuffer> messages;
};

// Sends a call to the emulator, and waits for the complete reply.
RawReply forwarded(grpc::GenericStub& stub, const std::string& method, const grpc::ByteBuffer& request) {
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer owner");
  const auto call = stub.PrepareCall(&context, method, &queue);
  const auto done = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  RawReply reply;
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

std::string bytes_of(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  (void)buffer.Dump(&slices);
  for (const auto& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

grpc::ByteBuffer buffer_of(const std::string& message) {
  const grpc::Slice slice(message);
  return {&slice, 1};
}

// A Listen stream on which the test sends the messages.
class FeedableStream : public grpc::ServerGenericBidiReactor {
 public:
  explicit FeedableStream(std::function<void(FeedableStream*)> on_end) : on_end_(std::move(on_end)) {
    StartRead(&incoming_);
  }

  [[nodiscard]] std::map<std::int32_t, std::string> targets() const {
    const std::lock_guard lock(mutex_);
    return targets_;
  }
  void send(const wire::ListenResponse& response) { send(buffer_of(response.SerializeAsString())); }
  void send(grpc::ByteBuffer buffer) {
    const std::lock_guard lock(mutex_);
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

std::string contents_of(const std::filesystem::path& path) {
  std::ostringstream contents;
  contents << std::ifstream(path).rdbuf();
  return contents.str();
}

std::shared_ptr<grpc::ServerCredentials> tls_credentials(const std::filesystem::path& certificates) {
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back(
      {contents_of(certificates / "server.key"), contents_of(certificates / "server.crt")});
  return grpc::SslServerCredentials(options);
}

}  // namespace

class FirestoreProxy::Service : public grpc::CallbackGenericService {
 public:
  Service(const std::string& emulator, const std::shared_ptr<grpc::ServerCredentials>& credentials)
      : stub_(grpc::CreateChannel(emulator, grpc::InsecureChannelCredentials())) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", credentials, &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
    if (!server_) throw std::runtime_error("cannot start a gRPC server");
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
  [[nodiscard]] std::string request(const std::string& method) const {
    const std::lock_guard lock(mutex_);
    const auto found = requests_.find(method);
    return found == requests_.end() ? "" : found->second;
  }
  [[nodiscard]] int flooded() const {
    const std::lock_guard lock(mutex_);
    return flooded_;
  }
  // Holds the mutex, so that no stream ends during the loop.
  void for_each_stream(const std::function<void(FeedableStream&)>& function) const {
    const std::lock_guard lock(mutex_);
    for (auto* stream : streams_) function(*stream);
  }

 private:
  // One call. It has its own thread, because a script may block.
  class Handler : public grpc::ServerGenericBidiReactor {
   public:
    // Without a reply, the script decides when the request has arrived.
    Handler(Service& service, std::string method, std::optional<Reply> reply)
        : service_(service), method_(std::move(method)), reply_(std::move(reply)) {
      StartRead(&request_);
    }

    [[nodiscard]] const std::string& method() const { return method_; }
    [[nodiscard]] const std::optional<Reply>& reply() const { return reply_; }
    [[nodiscard]] const grpc::ByteBuffer& request() const { return request_; }

    void wait_until_given_up() { given_up_.get_future().wait(); }

    // Returns false if the client has closed the call.
    bool write(const grpc::ByteBuffer& message) {
      written_ = std::promise<bool>();
      auto written = written_.get_future();
      StartWrite(&message);
      return written.get();
    }
    void answer(const RawReply& reply) {
      for (const auto& message : reply.messages) write(message);
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
    void OnWriteDone(bool ok) override { written_.set_value(ok); }
    void OnCancel() override { given_up_.set_value(); }
    void OnDone() override { delete this; }

    Service& service_;
    const std::string method_;
    const std::optional<Reply> reply_;
    grpc::ByteBuffer request_;
    std::promise<bool> written_;
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
    // The script decides here, because its reply determines which reactor serves the call.
    const Reply reply = script ? script("Listen") : refuse(grpc::StatusCode::UNIMPLEMENTED);
    if (reply.kind != Reply::Kind::forward) return new Handler(*this, method, reply);
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
      requests_[method] = bytes_of(handler.request());
      script = script_;
    }
    const auto reply = handler.reply() ? *handler.reply() : script ? script(method) : forward();
    RawReply raw_reply;
    switch (reply.kind) {
      case Reply::Kind::forward:
        raw_reply = forward_call(handler, method);
        break;
      case Reply::Kind::lose_reply:
        forward_call(handler, method);
        raw_reply.status = reply.status;
        break;
      case Reply::Kind::refuse:
        raw_reply.status = reply.status;
        break;
      case Reply::Kind::hang: {
        handler.wait_until_given_up();
        const std::lock_guard lock(mutex_);
        ++given_up_;
        break;
      }
      case Reply::Kind::answer:
        for (const auto& message : reply.messages) raw_reply.messages.push_back(buffer_of(message));
        break;
      case Reply::Kind::flood: {
        const auto message = buffer_of(reply.messages.at(0));
        while (handler.write(message)) {
          const std::lock_guard lock(mutex_);
          ++flooded_;
        }
        break;
      }
    }
    handler.answer(raw_reply);
    ended();
  }

  RawReply forward_call(const Handler& handler, const std::string& method) {
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
  int flooded_ = 0;
  Script script_;
  std::map<std::string, int> calls_;
  std::map<std::string, std::vector<grpc::StatusCode>> statuses_;
  std::map<std::string, std::string> headers_;
  std::map<std::string, std::string> requests_;
  std::set<FeedableStream*> streams_;
};

FirestoreProxy::FirestoreProxy(std::string emulator)
    : service_(std::make_unique<Service>(emulator, grpc::InsecureServerCredentials())) {}
FirestoreProxy::FirestoreProxy(std::string emulator, const std::filesystem::path& certificates)
    : service_(std::make_unique<Service>(emulator, tls_credentials(certificates))) {}
FirestoreProxy::~FirestoreProxy() = default;

int FirestoreProxy::port() const { return service_->port(); }
std::string FirestoreProxy::address() const { return "127.0.0.1:" + std::to_string(port()); }
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
std::string FirestoreProxy::request(const std::string& method) const { return service_->request(method); }
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
void FirestoreProxy::send_change(
    const std::function<void(std::int32_t, const std::string&, wire::ListenResponse&)>& compose) const {
  service_->for_each_stream([&](FeedableStream& stream) {
    for (const auto& [target, document] : stream.targets()) {
      wire::ListenResponse response;
      compose(target, document, response);
      stream.send(response);
    }
  });
}
void FirestoreProxy::send_garbage() const {
  service_->for_each_stream([](FeedableStream& stream) { stream.send(buffer_of("\xff\xff\xff\xff")); });
}
void FirestoreProxy::cut_streams() const {
  service_->for_each_stream([](FeedableStream& stream) { stream.cut(); });
}
int FirestoreProxy::flooded() const { return service_->flooded(); }
int FirestoreProxy::given_up() const { return service_->given_up(); }

}  // namespace syncguard::testing
