// What the command prints: one JSON object for programs, or short lines for people.
#pragma once

#include <syncguard/error.hpp>
#include <syncguard/lock_info.hpp>

#include <nlohmann/json.hpp>

#include <string>

namespace syncguard::command {

enum class Format { text, json };

enum class Verbosity { quiet, normal, verbose };

// Where the JSON object goes: to stderr where stdout belongs to somebody else.
enum class ObjectOn { out, err };

class Output {
 public:
  Output(Format format, Verbosity verbosity, ObjectOn object_on)
      : format_(format), verbosity_(verbosity), object_on_(object_on) {}

  [[nodiscard]] bool is_for_people() const { return format_ == Format::text && verbosity_ != Verbosity::quiet; }

  // The result: the object with --json, else the text, if there is any, on stdout. Call it once.
  void result(const nlohmann::ordered_json& object, const std::string& text) const;
  // Part of a text for result(): in colour if stdout is a terminal and NO_COLOR is not set.
  [[nodiscard]] std::string coloured(const char* colour, const std::string& text) const;
  // For people only, on stderr; nothing with --json or -q.
  void remark(const std::string& text) const;
  // With -v only, on stderr.
  void detail(const std::string& text) const;
  // Why the result is not what was wanted: on stderr, also with -q; not with --json, whose object says it.
  void error_line(const std::string& text) const;
  // {"error":{"code":…,"message":…}} with --json, else a line on stderr, also with -q. With -v also its cause, without
  // the key and the lock id.
  void error(const LockError& error) const;

 private:
  void print(const nlohmann::ordered_json& object) const;

  Format format_;
  Verbosity verbosity_;
  ObjectOn object_on_;
};

// In the time zone of whoever reads it.
std::string local_time(Timestamp time);

}  // namespace syncguard::command
