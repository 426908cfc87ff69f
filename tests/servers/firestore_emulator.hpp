// Google's own Firestore emulator, private to a test.
#pragma once

#include "servers/child_process.hpp"
#include "temporary_folder.hpp"

#include <nlohmann/json.hpp>

#include <memory>
#include <string>
#include <vector>

namespace syncguard::testing {

class FirestoreEmulator {
 public:
  FirestoreEmulator();
  FirestoreEmulator(const FirestoreEmulator&) = delete;
  FirestoreEmulator& operator=(const FirestoreEmulator&) = delete;

  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  // Each project is a database of its own. Options as in "&collection=x".
  [[nodiscard]] std::string url(const std::string& project, const std::string& more_options = "") const;

  // Its data are in its memory: a new start begins with nothing, on the same port.
  void kill();
  void start();
  void pause() const;
  void resume() const;

 private:
  [[nodiscard]] bool is_ready() const;

  const TemporaryFolder folder_;
  int port_ = 0;
  std::unique_ptr<ChildProcess> process_;
};

// Reaches into one project's documents by REST, with nothing of the backend's in between.
class FirestoreOutsider {
 public:
  FirestoreOutsider(const FirestoreEmulator& emulator, std::string project);

  // "locks/key" -> "projects/…/documents/locks/key"
  [[nodiscard]] std::string name_of(const std::string& path) const { return root_ + "/" + path; }

  // The document as REST has it (name, fields, updateTime); null if there is none.
  [[nodiscard]] nlohmann::json get(const std::string& path) const;
  void put(const std::string& path, const nlohmann::json& fields) const;
  void remove(const std::string& path) const;
  // The ids of all documents of a collection.
  [[nodiscard]] std::vector<std::string> list(const std::string& collection) const;

  // A read-write transaction, as Google's own libraries begin one.
  [[nodiscard]] std::string begin() const;
  [[nodiscard]] nlohmann::json get_in(const std::string& transaction, const std::vector<std::string>& paths) const;
  // False if Firestore gave it up in favour of another.
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
