// The output of the command: one JSON object for programs, or short lines for people. Lines begin with the program's
// name and the subject, and are made printable here.
#pragma once

#include <syncguard/error.hpp>
#include <syncguard/lock_info.hpp>
#include <syncguard/log.hpp>

#include <nlohmann/json.hpp>

#include <string>

namespace syncguard::command {

enum class Format { text, json };

enum class Verbosity { quiet, normal, verbose };

// Where the JSON object goes. It goes to stderr for `run`, because stdout belongs to its command.
enum class JsonStream { out, err };

class Output {
 public:
  // subject: the subcommand and the key, as in "acquire 'deploy'"; may be empty.
  Output(Format format, Verbosity verbosity, JsonStream json_stream, std::string subject)
      : format_(format), verbosity_(verbosity), json_stream_(json_stream), subject_(std::move(subject)) {}

  [[nodiscard]] bool is_interactive() const { return format_ == Format::text && verbosity_ != Verbosity::quiet; }

  // Prints the result: the object with --json, otherwise the text on stdout, unless it is empty. Call it once. The
  // caller makes untrusted parts of the text printable. Returns false if the reader of a pipe has ended, as `head`
  // does. Throws LockError if the result cannot be written for another reason.
  bool result(const nlohmann::ordered_json& object, const std::string& text) const;
  // Colors a part of a text for result() if stdout is a terminal and NO_COLOR is not set.
  [[nodiscard]] std::string colored(const char* color, const std::string& text) const;
  // Prints a message for people on stderr. Prints nothing with --json or -q.
  void note(const std::string& text) const;
  // Prints a message on stderr, only with -v.
  void detail(const std::string& text) const;
  // Prints on stderr why the result is not the expected one, even with -q. Not with --json, whose object contains the
  // reason.
  void error_line(const std::string& text) const;
  // Prints {"error":{"code":…,"message":…}} with --json, otherwise a line on stderr, even with -q. Also prints the line
  // if the object cannot be written. The message includes the causes, without the lock id.
  void error(const LockError& error) const;
  // The log for the library's messages: warnings unless -q is given, and debug messages with -v or SYNCGUARD_DEBUG.
  [[nodiscard]] Log log() const;

 private:
  [[nodiscard]] bool print(const nlohmann::ordered_json& object) const;
  void line(const std::string& text) const;

  Format format_;
  Verbosity verbosity_;
  JsonStream json_stream_;
  std::string subject_;
};

// The message of an error and its causes, without the error codes and without the lock id.
std::string message_with_causes(const LockError& error);

// In this process's time zone, which the text names.
std::string local_time(Timestamp time);

}  // namespace syncguard::command
