// A gRPC proxy between a client and the Firestore emulator. The test decides what happens to each call.
#pragma once

#include "firestore.pb.h"

#include <grpcpp/support/status.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace syncguard::testing {

class FirestoreProxy {
 public:
  // What the proxy does with one call.
  struct Reply {
    enum class Kind {
      forward,
      refuse,      // replies with a status, without forwarding the call
      lose_reply,  // forwards the call, but replies with another status
      hang,        // does not reply until the client cancels the call
      answer,      // replies with messages of the test, then a status
      flood,       // repeats the first message until the client cancels the call
    };
    Kind kind = Kind::forward;
    grpc::Status status{};
    std::vector<std::string> messages{};
  };
  static Reply forward() { return {}; }
  static Reply refuse(grpc::StatusCode code) { return {Reply::Kind::refuse, {code, "scripted"}, {}}; }
  static Reply lose_reply() {
    return {Reply::Kind::lose_reply, {grpc::StatusCode::UNAVAILABLE, "connection reset"}, {}};
  }
  static Reply hang() { return {Reply::Kind::hang, {}, {}}; }
  // The messages are sent as they are, valid or not.
  static Reply answer(std::vector<std::string> messages) { return {Reply::Kind::answer, {}, std::move(messages)}; }
  static Reply flood(std::string message) { return {Reply::Kind::flood, {}, {std::move(message)}}; }

  // Called for each call, with the short name of the method ("Commit"), on a thread that may block. "Listen" is never
  // forwarded: if the script returns forward() for it, the test sends the messages of the stream; without a script,
  // Listen is rejected and clients poll.
  using Script = std::function<Reply(const std::string& method)>;

  explicit FirestoreProxy(std::string emulator);
  // With TLS, and the server's certificate of make_certificates.
  FirestoreProxy(std::string emulator, const std::filesystem::path& certificates);
  FirestoreProxy(const FirestoreProxy&) = delete;
  FirestoreProxy& operator=(const FirestoreProxy&) = delete;
  ~FirestoreProxy();

  [[nodiscard]] int port() const;
  [[nodiscard]] std::string address() const;
  [[nodiscard]] std::string url(const std::string& project, const std::string& more_options = "") const;

  void set_script(Script script);
  // How many calls of a method have arrived.
  [[nodiscard]] int calls(const std::string& method) const;
  // How many calls of all methods have arrived.
  [[nodiscard]] int calls() const;
  // The emulator's replies to the forwarded calls of a method.
  [[nodiscard]] std::vector<grpc::StatusCode> statuses(const std::string& method) const;
  // A header of the latest call.
  [[nodiscard]] std::string header(const std::string& name) const;
  // The message of the latest call of a method.
  [[nodiscard]] std::string request(const std::string& method) const;

  // How many Listen streams are open, and how many documents clients listen for on them.
  [[nodiscard]] int streams() const;
  [[nodiscard]] int awaited() const;
  // Sends a change to each listener: compose() fills in the message for each document.
  void send_change(const std::function<void(std::int32_t target, const std::string& document,
                                            firestore::wire::ListenResponse& response)>& compose) const;
  // Sends bytes that are not a valid message on all streams.
  void send_garbage() const;
  void cut_streams() const;
  // How many hanging calls were canceled by their clients.
  [[nodiscard]] int given_up() const;
  // How many messages were sent by flood().
  [[nodiscard]] int flooded() const;

 private:
  class Service;
  std::unique_ptr<Service> service_;
};

}  // namespace syncguard::testing
