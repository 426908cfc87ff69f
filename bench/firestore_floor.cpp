// gRPC's blocking calls, as code that protoc generates makes them, with the library's own requests.

#include "backends/firestore/firestore_url.hpp"
#include "backends/firestore/requests.hpp"
#include "floor.hpp"

#include <grpcpp/create_channel.h>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/sync_stream.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <vector>

namespace syncguard::bench {
namespace {

using namespace firestore;

class Stub {
 public:
  Stub(const FirestoreOptions& options, std::string database)
      : channel_(grpc::CreateChannel(options.emulator, grpc::InsecureChannelCredentials())),
        database_(std::move(database)) {}

  std::vector<std::optional<wire::Document>> read(const std::vector<std::string>& names) {
    std::vector<std::optional<wire::Document>> documents(names.size());
    stream<wire::BatchGetDocumentsResponse>("BatchGetDocuments", read_request(database_, names), [&](auto& response) {
      if (!response.has_found()) return;
      documents[response.found().name() == names[0] ? 0 : 1] = std::move(*response.mutable_found());
    });
    return documents;
  }

  wire::Document find(const Names& names, const LockId& id) {
    wire::Document document;
    stream<wire::RunQueryResponse>("RunQuery", find_request(names, id), [&](auto& response) {
      if (response.has_document()) document = std::move(*response.mutable_document());
    });
    return document;
  }

  void commit(std::vector<wire::Write> writes) {
    const auto request = commit_request(database_, std::move(writes));
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer owner");
    wire::CommitResponse response;
    expect_ok(grpc::internal::BlockingUnaryCall<wire::CommitRequest, wire::CommitResponse>(
        channel_.get(), method("Commit", grpc::internal::RpcMethod::NORMAL_RPC), &context, request, &response));
  }

 private:
  grpc::internal::RpcMethod method(const std::string& name, grpc::internal::RpcMethod::RpcType type) {
    full_name_ = "/google.firestore.v1.Firestore/" + name;
    return {full_name_.c_str(), type};
  }
  static void expect_ok(const grpc::Status& status) {
    if (!status.ok()) throw std::runtime_error("gRPC was refused: " + status.error_message());
  }

  template <typename Response, typename Request, typename Function>
  void stream(const std::string& name, const Request& request, const Function& take) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer owner");
    const std::unique_ptr<grpc::ClientReader<Response>> reader(grpc::internal::ClientReaderFactory<Response>::Create(
        channel_.get(), method(name, grpc::internal::RpcMethod::SERVER_STREAMING), &context, request));
    Response response;
    while (reader->Read(&response)) take(response);
    expect_ok(reader->Finish());
  }

  const std::shared_ptr<grpc::Channel> channel_;
  const std::string database_;
  std::string full_name_;
};

}  // namespace

Floor firestore_floor(const std::string& text) {
  BackendUrl url(text);
  const auto options = firestore::options_of(url);
  const auto make_caller = [options](const Key& key) -> std::function<void()> {
    const auto database = "projects/" + options.project + "/databases/" + options.database;
    const auto stub = std::make_shared<Stub>(options, database);
    const auto names = std::make_shared<Names>(database, options.collection, options.fence_collection);
    return [stub, names, key] {
      const auto of_key = names->of(key);
      const auto read = stub->read({of_key.lock, of_key.counter});
      const auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
      const Fence fence((read[1] ? counter_of(*read[1]).value() : 0) + 1);
      const LockRecord lock{key, LockId::generate(), now + std::chrono::seconds(30), now, fence};
      stub->commit(
          {put(lock_document(of_key.lock, lock), read[0]), put(counter_document(of_key.counter, fence, key), read[1])});
      stub->commit({remove(stub->find(*names, lock.lock_id))});
    };
  };
  return {.name = "gRPC's blocking calls, the same requests", .callers = {1}, .make_caller = make_caller};
}

}  // namespace syncguard::bench
