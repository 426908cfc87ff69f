// Google's Firestore emulator.
#pragma once

#include "servers/child_process.hpp"
#include "support/temporary_folder.hpp"

#include <nlohmann/json.hpp>

#include <memory>
#include <string>
#include <vector>

namespace syncguard::testing {

class FirestoreEmulator {
 public:
  FirestoreEmulator();
  // Uses an emulator that another process has started. It must not be killed or paused.
  explicit FirestoreEmulator(std::string address) : address_(std::move(address)) {}
  FirestoreEmulator(const FirestoreEmulator&) = delete;
  FirestoreEmulator& operator=(const FirestoreEmulator&) = delete;

  [[nodiscard]] const std::string& address() const { return address_; }
  // Projects do not share data. Example of options: "&collection=x".
  [[nodiscard]] std::string url(const std::string& project, const std::string& more_options = "") const;

  // The data is lost, because the emulator keeps it in memory. start() uses the same port again.
  void kill();
  void start();
  void pause() { process().pause(); }
  void resume() { process().resume(); }

 private:
  [[nodiscard]] ChildProcess& process();
  [[nodiscard]] bool is_ready() const;

  const TemporaryFolder folder_;
  int port_ = 0;
  std::string address_;
  std::unique_ptr<ChildProcess> process_;
};

// The emulator of the ctest fixture, or, if the program is run without it, one for all its tests. Starting one takes
// seconds. Each test uses its own project.
FirestoreEmulator& shared_emulator();
std::string next_project();

// Reads and writes the documents of one project with the REST API, without the backend.
class FirestoreRestClient {
 public:
  FirestoreRestClient(const FirestoreEmulator& emulator, std::string project);

  // "locks/key" -> "projects/…/documents/locks/key"
  [[nodiscard]] std::string name_of(const std::string& path) const { return root_ + "/" + path; }

  // The document in its REST form (name, fields, updateTime); null if there is none.
  [[nodiscard]] nlohmann::json get(const std::string& path) const;
  void put(const std::string& path, const nlohmann::json& fields) const;
  void remove(const std::string& path) const;
  // The ids of all documents of a collection.
  [[nodiscard]] std::vector<std::string> list(const std::string& collection) const;

  // Begins a read-write transaction, as Google's libraries do.
  [[nodiscard]] std::string begin() const;
  [[nodiscard]] nlohmann::json get_in(const std::string& transaction, const std::vector<std::string>& paths) const;
  // Returns false if Firestore aborted the transaction because of another one.
  [[nodiscard]] bool commit_in(const std::string& transaction, const nlohmann::json& writes) const;
  [[nodiscard]] nlohmann::json write_of(const std::string& path, const nlohmann::json& fields) const;

 private:
  struct Answer {
    int status;
    nlohmann::json body;
  };
  [[nodiscard]] Answer post(const std::string& method, const nlohmann::json& body) const;
  nlohmann::json expect_ok(const std::string& method, const nlohmann::json& body) const;

  const std::string address_;
  const std::string root_;
};

}  // namespace syncguard::testing
