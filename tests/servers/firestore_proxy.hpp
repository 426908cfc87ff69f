// A gRPC server between a client and the Firestore emulator that does to its calls what a test says.
#pragma once

#include "firestore.pb.h"

#include <grpcpp/support/status.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace syncguard::testing {

class FirestoreProxy {
 public:
  // What becomes of one call.
  struct Fate {
    enum class Kind {
      forward,
      refuse,      // answered with a status, without asking the emulator
      lose_reply,  // carried out, and answered with a status
      hang,        // not answered, until the client gives up
    };
    Kind kind = Kind::forward;
    grpc::Status status{};
  };
  static Fate forward() { return {}; }
  static Fate refuse(grpc::StatusCode code) { return {Fate::Kind::refuse, {code, "scripted"}}; }
  static Fate lose_reply() { return {Fate::Kind::lose_reply, {grpc::StatusCode::UNAVAILABLE, "connection reset"}}; }
  static Fate hang() { return {Fate::Kind::hang, {}}; }

  // Asked for each call, by the method's short name ("Commit"), on a thread that may block. "Listen" is not forwarded:
  // a script that says so has a stream that the test feeds; without one clients poll.
  using Script = std::function<Fate(const std::string& method)>;

  explicit FirestoreProxy(std::string emulator);
  FirestoreProxy(const FirestoreProxy&) = delete;
  FirestoreProxy& operator=(const FirestoreProxy&) = delete;
  ~FirestoreProxy();

  [[nodiscard]] std::string address() const;
  [[nodiscard]] std::string url(const std::string& project, const std::string& more_options = "") const;

  void set_script(Script script);
  // How many calls of a method came here.
  [[nodiscard]] int calls(const std::string& method) const;
  // Of all methods.
  [[nodiscard]] int calls() const;
  // What the emulator answered to the calls of a method that were forwarded.
  [[nodiscard]] std::vector<grpc::StatusCode> statuses(const std::string& method) const;
  // A header of the latest call.
  [[nodiscard]] std::string header(const std::string& name) const;

  // Of the Listen streams that are open: how many documents are awaited, telling that one is gone, and ending them.
  [[nodiscard]] int streams() const;
  [[nodiscard]] int awaited() const;
  void tell(const std::function<void(std::int32_t target, const std::string& document,
                                     firestore::wire::ListenResponse& response)>& compose) const;
  void cut_streams() const;
  // How many clients gave up a call that hung.
  [[nodiscard]] int given_up() const;

 private:
  class Service;
  std::unique_ptr<Service> service_;
};

}  // namespace syncguard::testing
