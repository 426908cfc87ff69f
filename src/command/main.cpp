// syncguard: locks for shell scripts, cron jobs and deployments.

#include "command/commands.hpp"
#include "command/run.hpp"
#include "command/signals.hpp"
#include "core/duration.hpp"

#include <CLI/CLI.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string_view>

namespace {

using namespace syncguard;
using namespace syncguard::command;

constexpr const char* exit_codes = R"(
Exit codes: 0 yes; 1 no (not released, not extended, not locked, not fit); 2 usage or bad argument;
69 the backend is unavailable or too slow; 70 internal error; 75 locked by somebody else;
77 not permitted; 79 the lock was lost while the command ran; 130 interrupted. 'run' returns
the command's own, 128+n if signal n killed it, 126 if it cannot be executed, 127 if it is not found.

Durations read 500ms, 30s, 5m, 1h30m.)";
constexpr const char* url_variable = "SYNCGUARD_URL";
constexpr const char* run_example = R"(
Example: syncguard run --key backup --no-wait -- tar -cf /backup/home.tar /home
)";

// Reads a duration into place.
CLI::Option* add_duration(CLI::App* command, const std::string& name, std::chrono::milliseconds& place,
                          const std::string& description, const std::string& shown_default) {
  return command
      ->add_option_function<std::string>(
          name,
          [&place, name](const std::string& text) {
            const auto duration = core::parse_duration(text);
            if (!duration) throw CLI::ValidationError(name, "is a duration such as 500ms, 30s, 5m or 1h30m");
            place = *duration;
          },
          description)
      ->type_name("DURATION")
      ->default_str(shown_default);
}

void add_exit_code(CLI::App* command, const std::string& name, int& place, const std::string& description) {
  command->add_option(name, place, description)->type_name("CODE")->check(CLI::Range(0, 255))->capture_default_str();
}

using Words = std::vector<std::string>;

// The first word that is no option of all commands, before "--".
Words::iterator find_command(Words& arguments) {
  const auto marker = std::find(arguments.begin(), arguments.end(), "--");
  auto word = arguments.begin();
  while (word != marker && word->starts_with('-')) word += *word == "--url" && word + 1 != marker ? 2 : 1;
  return word != marker ? word : arguments.end();
}

// What the user wants to be run stands after "--", or begins with the first word that is neither an option of ours nor
// the value of one. None of it is for us to look at. Empty if there is none, or if the command is not `run`.
Words take_command_line(Words& arguments, const CLI::App& app, const CLI::App& run_command) {
  auto word = find_command(arguments);
  if (word == arguments.end() || *word != "run") return {};
  const auto takes_value = [&](const std::string& name) {
    const auto* option = run_command.get_option_no_throw(name);
    if (option == nullptr) option = app.get_option_no_throw(name);
    return option != nullptr && option->get_expected_max() > 0;
  };
  ++word;
  while (word != arguments.end() && *word != "--" && word->starts_with('-')) {
    word += takes_value(*word) && word + 1 != arguments.end() ? 2 : 1;
  }
  if (word == arguments.end()) return {};
  Words line(*word == "--" ? word + 1 : word, arguments.end());
  arguments.erase(word, arguments.end());
  return line;
}

// Without what comes after "://" in any word that was typed: after a misspelt option, that may be a password.
std::string without_urls(std::string text, const Words& typed) {
  constexpr std::string_view begin = "://";
  for (const auto& word : typed) {
    const auto place = word.find(begin);
    if (place == std::string::npos || place + begin.size() == word.size()) continue;
    const auto rest = word.substr(place);
    const std::string shown = std::string(begin) + "...";
    for (auto at = text.find(rest); at != std::string::npos; at = text.find(rest, at + shown.size())) {
      text.replace(at, rest.size(), shown);
    }
  }
  return text;
}

// One lock id in sixty-four begins with a dash, and would be taken for an option. None of ours looks like one.
void protect_lock_ids(Words& arguments) {
  Words ids;
  for (std::size_t i = 0; i < arguments.size() && arguments[i] != "--";) {
    if (!arguments[i].starts_with('-') || !LockId::is_valid(arguments[i])) {
      ++i;
    } else if (i > 0 && arguments[i - 1] == "--id") {
      arguments[i - 1] += "=" + arguments[i];
      arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ids.push_back(arguments[i]);
      arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  if (ids.empty()) return;
  if (std::find(arguments.begin(), arguments.end(), "--") == arguments.end()) arguments.emplace_back("--");
  arguments.insert(arguments.end(), ids.begin(), ids.end());
}

// Opens what the caller closed, so that it cannot become a file or a socket of ours. To use it is an error all the
// same, and the command of `run` finds it as closed as we did.
void occupy_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0) continue;
    [[maybe_unused]] const int opened =
        ::open("/dev/null", (descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
  }
}

}  // namespace

int main(int argc, char** argv) {
  occupy_standard_descriptors();
  CLI::App app("Locks between processes, on one machine or many.");
  app.name("syncguard");
  app.footer(exit_codes);
  app.set_version_flag("--version", "syncguard " SYNCGUARD_VERSION);
  // Not required by CLI11, which would say that one is missing where it is only misspelt.
  app.require_subcommand(0, 1);
  app.fallthrough();

  std::optional<std::string> url;
  bool json = false;
  bool quiet = false;
  bool verbose = false;
  app.add_option("--url", url,
                 "The backend; also from SYNCGUARD_URL. Without one: SQLite in your state folder, which serves all "
                 "processes of this host")
      ->envname(url_variable);
  app.add_flag("--json", json, "Print exactly one JSON object");
  auto* quiet_flag = app.add_flag("-q,--quiet", quiet, "Print results and errors only");
  app.add_flag("-v,--verbose", verbose, "Print what the library has to say, too")->excludes(quiet_flag);

  // What to do: with a client, or without.
  std::function<int(Locks&, const Output&, std::stop_token)> action;
  std::function<int(const ClientOptions&, const Output&)> own_action;
  // For what takes many requests. The URL's operation_timeout comes before it.
  constexpr std::chrono::seconds unhurried{10};
  std::optional<std::chrono::milliseconds> patience;

  RunArguments running;
  bool no_wait = false;
  auto* run_command = app.add_subcommand("run", "Run a command while holding a lock; its exit code is returned");
  run_command->add_option("--key", running.key, "What to lock; without it, the command's name")->type_name("KEY");
  add_duration(run_command, "--ttl", running.ttl, "How long the lock outlives this host; it is renewed meanwhile",
               "30s");
  auto* run_wait =
      add_duration(run_command, "--wait", running.wait, "How long to wait for the lock", "as long as it takes");
  run_command->add_flag("--no-wait", no_wait, "Do not wait for the lock")->excludes(run_wait);
  add_exit_code(run_command, "--conflict-exit-code", running.conflict_exit_code,
                "What to return if somebody else has the lock");
  add_exit_code(run_command, "--lost-exit-code", running.lost_exit_code,
                "What to return if the lock was lost and the command therefore killed");
  add_duration(run_command, "--kill-after", running.kill_after,
               "SIGTERM comes so long before SIGKILL when the lock is about to be lost; at most a third of the ttl",
               "5s");
  // For the help alone: it is never left for CLI11 to look at.
  Words shown_only;
  run_command->add_option("CMD", shown_only, "The command and its arguments, all that follows; -- may stand before it");
  run_command->callback([&] {
    if (running.command.empty()) throw CLI::RequiredError("CMD");
    if (no_wait) running.wait = std::chrono::milliseconds(0);
    own_action = [&](const ClientOptions& options, const Output& output) {
      return run(*url, options, running, output);
    };
  });

  AcquireArguments acquiring;
  auto* acquire_command =
      app.add_subcommand("acquire", "Acquire a lock and print its id, which is needed to release it");
  acquire_command->add_option("KEY", acquiring.key, "What to lock")->required();
  add_duration(acquire_command, "--ttl", acquiring.ttl, "How long the lock lives unless it is extended", "30s");
  add_duration(acquire_command, "--wait", acquiring.wait, "How long to wait for it", "0s");
  acquire_command->callback([&] {
    action = [&](Locks& locks, const Output& output, const std::stop_token& stop) {
      return acquire(locks, acquiring, output, stop);
    };
  });

  std::string lock_id;
  auto* release_command = app.add_subcommand("release", "Release a lock by its id");
  release_command->add_option("LOCK_ID", lock_id, "What acquire printed")->required();
  release_command->callback([&] {
    action = [&](Locks& locks, const Output& output, std::stop_token stop) {
      return release(locks, lock_id, output, std::move(stop));
    };
  });

  std::chrono::milliseconds extend_ttl{30'000};
  auto* extend_command = app.add_subcommand("extend", "Let a lock live on, counted from now");
  extend_command->add_option("LOCK_ID", lock_id, "What acquire printed")->required();
  add_duration(extend_command, "--ttl", extend_ttl, "For how long", "30s");
  extend_command->callback([&] {
    action = [&](Locks& locks, const Output& output, std::stop_token stop) {
      return extend(locks, lock_id, extend_ttl, output, std::move(stop));
    };
  });

  StatusArguments asking;
  auto* status_command = app.add_subcommand("status", "Say what is known about a lock, for people and dashboards");
  auto* status_key = status_command->add_option("KEY", asking.key, "Which key");
  auto* status_id =
      status_command->add_option("--id", asking.lock_id, "Or which lock, by its id")->type_name("LOCK_ID");
  status_key->excludes(status_id);
  status_command->add_flag("--raw", asking.raw, "Show the key and the lock id too; keep them out of logs");
  status_command->callback([&] {
    if (!asking.key && !asking.lock_id) throw CLI::RequiredError("KEY or --id");
    action = [&](Locks& locks, const Output& output, std::stop_token stop) {
      return status(locks, asking, output, std::move(stop));
    };
  });

  std::string key;
  auto* is_locked_command = app.add_subcommand("is-locked", "Say by the exit code whether a key is locked");
  is_locked_command->add_option("KEY", key, "Which key")->required();
  is_locked_command->callback([&] {
    action = [&](Locks& locks, const Output& output, std::stop_token stop) {
      return is_locked(locks, key, output, std::move(stop));
    };
  });

  app.add_subcommand("setup", "Create what the backend needs: tables, or a file")->callback([&] {
    action = [](Locks& locks, const Output& output, std::stop_token stop) {
      return setup(locks, output, std::move(stop));
    };
    patience = unhurried;
  });
  app.add_subcommand("doctor", "Check the backend, and say what is wrong and how to mend it")->callback([&] {
    action = [](Locks& locks, const Output& output, std::stop_token stop) {
      return doctor(locks, output, std::move(stop));
    };
    patience = unhurried;
  });

  app.add_subcommand("backends", "Say which backends this build contains")->callback([&] {
    own_action = [](const ClientOptions&, const Output& output) { return backends(output); };
  });

  for (auto* command : app.get_subcommands({})) {
    const std::string example = command == run_command ? run_example : "";
    command->footer(example + "\nOptions of all commands (syncguard --help): --url, --json, -q, -v.\n" + exit_codes);
  }

  const Words typed(argv + 1, argv + argc);
  Words arguments = typed;
  running.command = take_command_line(arguments, app, *run_command);
  protect_lock_ids(arguments);
  const bool json_asked = std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
  try {
    const auto word = find_command(arguments);
    const auto is_named = [&](const CLI::App* command) { return command->get_name() == *word; };
    if (word != arguments.end() && app.get_subcommands(is_named).empty()) {
      throw CLI::ParseError("There is no command '" + *word + "'", CLI::ExitCodes::ExtrasError);
    }
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    app.parse(arguments);
    if (app.get_subcommands().empty()) throw CLI::RequiredError("A command");
  } catch (const CLI::ParseError& error) {
    // Help and version are errors to CLI11, with the code of success.
    const bool wrong = error.get_exit_code() != 0;
    if (!wrong) {
      app.exit(error);
      return exit_yes;
    }
    const auto message = without_urls(error.what(), typed);
    if (json_asked) {
      const auto object_on = run_command->parsed() ? ObjectOn::err : ObjectOn::out;
      Output(Format::json, Verbosity::normal, object_on).error(LockError(ErrorCode::invalid_argument, message));
    } else {
      app.exit(CLI::ParseError(message, error.get_exit_code()));
    }
    return exit_usage;
  }

  // Where a variable was to say which, an empty one must not lead to another store.
  if (!url) url = std::getenv(url_variable) == nullptr ? "sqlite:" : "";
  const auto verbosity = quiet ? Verbosity::quiet : verbose ? Verbosity::verbose : Verbosity::normal;
  const auto format = json ? Format::json : Format::text;
  const Output output(format, verbosity, run_command->parsed() ? ObjectOn::err : ObjectOn::out);
  ClientOptions options;
  options.operation_timeout = patience;
  if (quiet) options.log = Log([](LogLevel, std::string_view) {});
  if (verbose) options.log = Log(LogLevel::debug);
  try {
    if (url->empty()) {
      throw LockError(ErrorCode::invalid_argument,
                      std::string("the backend's URL, --url or ") + url_variable + ", is empty");
    }
    if (own_action) return own_action(options, output);
    const StopOnSignals signals;
    auto locks = open(*url, options);
    return action(locks, output, signals.token());
  } catch (const LockError& error) {
    output.error(error);
    // 130 all the same, where it does not end us.
    if (error.code() == ErrorCode::aborted && StopOnSignals::received() == SIGINT) end_by(SIGINT);
    return exit_code_of(error.code());
  } catch (const std::exception& error) {
    output.error(LockError(ErrorCode::internal, error.what()));
    return exit_internal;
  }
}
