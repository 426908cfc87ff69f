// What the command prints: one JSON object for programs, or short lines for people.
#pragma once

#include <syncguard/error.hpp>

#include <nlohmann/json.hpp>

#include <string>

namespace syncguard::command {

enum class Verbosity { quiet, normal };

class Output {
 public:
  Output(bool json, Verbosity verbosity) : json_(json), verbosity_(verbosity) {}

  // The result: the object with --json, else the text, if there is any, on stdout. Call it once.
  void result(const nlohmann::ordered_json& object, const std::string& text) const;
  // For people only, on stderr; nothing with --json or -q.
  void remark(const std::string& text) const;
  // {"error":{"code":…,"message":…}} on stdout with --json, else a line on stderr, also with -q.
  void error(const LockError& error) const;

 private:
  bool json_;
  Verbosity verbosity_;
};

}  // namespace syncguard::command
