// syncguard: locks for shell scripts, cron jobs and deployments.

#include "command/administration.hpp"
#include "command/commands.hpp"
#include "command/run.hpp"
#include "command/serve.hpp"
#include "command/signals.hpp"
#include "core/durations.hpp"

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
Exit codes: 0 success or yes; 1 no (not released, extended, locked or broken; check failed); 2 invalid usage;
69 the backend is unavailable or too slow; 70 internal error; 75 locked by another holder;
77 access denied; 79 the lock was lost before it was released; 130 interrupted. 'run' returns
the exit code of the command, 128+n if signal n killed it, 124 if it exceeded --timeout, 126 if it
cannot be executed, 127 if it is not found.

Durations: 500ms, 30s, 5m, 1h30m, 1d.)";
constexpr const char* url_variable = "SYNCGUARD_URL";
constexpr const char* run_example = R"(
Example: syncguard run --key backup --no-wait -- tar -cf /backup/home.tar /home
)";

// Adds an option whose value is a duration.
CLI::Option* add_duration(CLI::App* command, const std::string& name, std::chrono::milliseconds& place,
                          const std::string& description, const std::string& shown_default) {
  return command
      ->add_option_function<std::string>(
          name,
          [&place, name](const std::string& text) {
            const auto duration = core::parse_duration(text);
            if (!duration && !text.empty() && text.find_first_not_of("0123456789") == std::string::npos) {
              throw CLI::ValidationError(name, "'" + text + "' has no unit: write " + text +
                                                   "s for seconds (the units are ms, s, m, h and d)");
            }
            if (!duration) throw CLI::ValidationError(name, "is not a duration such as 500ms, 30s, 5m, 1h30m or 1d");
            place = *duration;
          },
          description)
      ->type_name("DURATION")
      ->default_str(shown_default);
}

void add_exit_code(CLI::App* command, const std::string& name, int& place, const std::string& description) {
  command->add_option(name, place, description)->type_name("CODE")->check(CLI::Range(0, 255))->capture_default_str();
}

// Adds an option whose value is a fence.
void add_fence(CLI::App* command, const std::string& name, std::optional<Fence>& place,
               const std::string& description) {
  command
      ->add_option_function<std::string>(
          name,
          [&place, name](const std::string& text) {
            try {
              place = parse_fence(text);
            } catch (const LockError& error) {
              throw CLI::ValidationError(name, error.what());
            }
          },
          description)
      ->type_name("FENCE");
}

using Arguments = std::vector<std::string>;

// The first word before "--" that is not a global option.
Arguments::iterator find_command(Arguments& arguments) {
  const auto marker = std::find(arguments.begin(), arguments.end(), "--");
  auto word = arguments.begin();
  while (word != marker && word->starts_with('-')) word += *word == "--url" && word + 1 != marker ? 2 : 1;
  return word != marker ? word : arguments.end();
}

// The command line to run follows "--", or begins with the first word that is neither an option of syncguard nor the
// value of one. It is not parsed. Empty if there is none, or if the command is not `run`.
Arguments take_command_line(Arguments& arguments, const CLI::App& app, const CLI::App& run_command) {
  auto word = find_command(arguments);
  if (word == arguments.end() || *word != "run") return {};
  const auto takes_value = [&](const std::string& name) {
    const auto* option = run_command.get_option_no_throw(name);
    if (option == nullptr) option = app.get_option_no_throw(name);
    return option != nullptr && option->get_expected_max() > 0;
  };
  ++word;
  while (word != arguments.end() && *word != "--" && word->starts_with('-')) {
    // "--" is never a value, even after an option whose value is missing (for example an empty variable).
    word += takes_value(*word) && word + 1 != arguments.end() && word[1] != "--" ? 2 : 1;
  }
  if (word == arguments.end()) return {};
  Arguments line(*word == "--" ? word + 1 : word, arguments.end());
  arguments.erase(word, arguments.end());
  return line;
}

// How messages name an option: without its value, which may be a secret.
std::string option_name(const std::string& word) {
  constexpr std::size_t short_name = 2;
  return word.substr(0, word.starts_with("--") ? word.find('=') : short_name);
}

[[noreturn]] void refuse_option(const std::string& word) {
  throw CLI::ParseError("unknown option '" + option_name(word) + "'", CLI::ExitCodes::ExtrasError);
}

// Rejects an unknown option before the command: the word after it is probably its value, perhaps a password, and not
// the command. Rejects an unknown command, and repeats it only if it looks like one.
void expect_command(Arguments& arguments, const CLI::App& app) {
  const auto word = find_command(arguments);
  for (auto option = arguments.begin(); option != word; ++option) {
    if (option->starts_with('-') && app.get_option_no_throw(option_name(*option)) == nullptr) refuse_option(*option);
  }
  if (word == arguments.end()) return;
  const auto is_named = [&](const CLI::App* command) { return command->get_name() == *word; };
  if (!app.get_subcommands(is_named).empty()) return;
  const bool is_name = word->find_first_not_of("abcdefghijklmnopqrstuvwxyz-") == std::string::npos;
  throw CLI::ParseError("unknown command" + (is_name ? " '" + *word + "'" : ""), CLI::ExitCodes::ExtrasError);
}

// CLI11's own message would repeat all unexpected words.
[[noreturn]] void refuse_extras(const Arguments& extras) {
  const auto option = std::ranges::find_if(extras, [](const auto& argument) { return argument.starts_with('-'); });
  if (option != extras.end()) refuse_option(*option);
  throw CLI::ParseError("too many arguments: quote those that contain spaces", CLI::ExitCodes::ExtrasError);
}

// Removes the text after "://" in any typed word: after a misspelled option, it may contain a password.
std::string without_urls(std::string text, const Arguments& typed) {
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

// One lock id in 64 begins with a dash and would be parsed as an option. No option has the form of a lock id.
void protect_lock_ids(Arguments& arguments) {
  Arguments ids;
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

// Opens standard streams that the caller closed, so that no file or socket gets their descriptors. Using them is still
// an error, and the command of `run` finds them closed.
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
  RunArguments running;
  // A closed output pipe must not change the exit code. The command of `run` starts with the original action.
  struct sigaction ignored {};
  ignored.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignored, &running.pipe_action);
  CLI::App app(
      "Distributed locks that expire, for shell scripts, cron jobs and deployments; on SQLite, Redis, PostgreSQL and "
      "Firestore.");
  app.name("syncguard");
  app.footer(exit_codes);
  app.set_version_flag("--version", "syncguard " SYNCGUARD_VERSION);
  // Not required by CLI11, which would report a misspelled command as missing.
  app.require_subcommand(0, 1);
  app.fallthrough();

  std::optional<std::string> url;
  bool json = false;
  bool quiet = false;
  bool verbose = false;
  app.add_option(
         "--url", url,
         "The URL of the backend; also from SYNCGUARD_URL. Default: a SQLite file in your state folder, shared by your "
         "processes on this host")
      ->envname(url_variable);
  app.add_flag("--json", json, "Print exactly one JSON object");
  auto* quiet_flag = app.add_flag("-q,--quiet", quiet, "Print results and errors only");
  app.add_flag("-v,--verbose", verbose, "Also print the library's messages and one line per operation")
      ->excludes(quiet_flag);

  // The command: with a client, or without.
  std::function<int(Locks&, const Output&, std::stop_token)> action;
  std::function<int(const ClientOptions&, const Output&)> own_action;
  // Most commands take a client and their arguments, which are complete when the command runs.
  const auto use_client = [&action](auto command, const auto& arguments) {
    action = [command, &arguments](Locks& locks, const Output& output, const std::stop_token& stop) {
      if constexpr (std::is_invocable_v<decltype(command), Locks&, decltype(arguments), const Output&,
                                        const std::stop_token&>) {
        return command(locks, arguments, output, stop);
      } else {
        return command(locks.admin(), arguments, output, stop);
      }
    };
  };
  // For commands that make many requests. The URL's operation_timeout takes precedence.
  constexpr std::chrono::seconds long_timeout{10};
  std::optional<std::chrono::milliseconds> default_timeout;
  // A store inside this process would be useless.
  bool requires_shared_store = true;

  bool no_wait = false;
  auto* run_command = app.add_subcommand("run", "Run a command while holding a lock, and return its exit code");
  run_command
      ->add_option(
          "--key", running.key,
          "The key to lock. Default: the command's name. Required if the command is a shell, an interpreter or "
          "another program that runs programs")
      ->type_name("KEY");
  add_duration(run_command, "--ttl", running.ttl,
               "How long the lock stays held if this host crashes; renewed automatically while the command runs",
               "30s");
  auto* run_wait = add_duration(
      run_command, "--wait", running.wait,
      "How long to wait for the lock, and to retry while the backend is unavailable. Without this option, run waits "
      "forever for the lock, but fails immediately if the backend is unreachable",
      "forever");
  run_command->add_flag("--no-wait", no_wait, "Do not wait for the lock")->excludes(run_wait);
  add_exit_code(run_command, "--conflict-exit-code", running.conflict_exit_code,
                "Exit code if another holder has the lock");
  add_exit_code(run_command, "--lost-exit-code", running.lost_exit_code,
                "Exit code if the lock was lost before it was released, even if the command succeeded");
  add_duration(run_command, "--kill-after", running.kill_after,
               "Grace period between SIGTERM and SIGKILL. If the lock is about to expire, at most a third of --ttl",
               "5s");
  add_duration(run_command, "--at-least", running.at_least, "Minimum time to hold the lock, whatever ends the command",
               "0s");
  add_duration(run_command, "--timeout", running.timeout, "How long the command may run before it is terminated",
               "unlimited");
  bool pass_url = false;
  run_command->add_flag("--pass-url", pass_url,
                        "Pass the backend's URL, including its password, to the command in SYNCGUARD_URL");
  // Only for the help text: the command line is removed before CLI11 parses the rest.
  Arguments shown_only;
  run_command->add_option("CMD", shown_only, "The command and all its arguments, optionally after --");
  run_command->callback([&] {
    if (running.command.empty()) throw CLI::RequiredError("CMD");
    if (no_wait) running.wait = std::chrono::milliseconds(0);
    own_action = [&](const ClientOptions& options, const Output& output) {
      return run(*url, options, running, output);
    };
  });
  std::string lock_id;

  AcquireArguments acquiring;
  auto* acquire_command =
      app.add_subcommand("acquire", "Acquire a lock and print its id, which is needed to release it");
  acquire_command->add_option("KEY", acquiring.key, "The key to lock")->required();
  add_duration(acquire_command, "--ttl", acquiring.ttl, "How long the lock stays held unless it is extended", "30s");
  add_duration(acquire_command, "--wait", acquiring.wait,
               "How long to wait for the lock, and to retry while the backend is unavailable", "0s");
  acquire_command->callback([&] { use_client(acquire, acquiring); });

  auto* release_command = app.add_subcommand("release", "Release a lock by its id");
  release_command
      ->add_option("LOCK_ID", lock_id, "The lock id that acquire printed, or - to read it from standard input")
      ->required();
  release_command->callback([&] { use_client(release, lock_id); });

  std::chrono::milliseconds extend_ttl{30'000};
  auto* extend_command = app.add_subcommand("extend", "Extend a lock by its id");
  extend_command
      ->add_option("LOCK_ID", lock_id, "The lock id that acquire printed, or - to read it from standard input")
      ->required();
  add_duration(extend_command, "--ttl", extend_ttl, "The new remaining time, counted from now", "30s");
  extend_command->callback([&] {
    action = [&](Locks& locks, const Output& output, std::stop_token stop) {
      return extend(locks, lock_id, extend_ttl, output, std::move(stop));
    };
  });

  StatusArguments asking;
  auto* status_command = app.add_subcommand("status", "Show the state of a lock, for people and dashboards");
  auto* status_key = status_command->add_option("KEY", asking.key, "The key of the lock");
  auto* status_id = status_command
                        ->add_option("--id", asking.lock_id,
                                     "The id of the lock instead of its key, or - to read it from standard input")
                        ->type_name("LOCK_ID");
  status_key->excludes(status_id);
  status_command->add_flag("--raw", asking.raw, "Also show the lock id. Keep it out of logs: it can release the lock");
  status_command->callback([&] {
    if (!asking.key && !asking.lock_id) throw CLI::RequiredError("KEY or --id");
    use_client(status, asking);
  });

  std::string key;
  auto* is_locked_command = app.add_subcommand("is-locked", "Return 0 if a key is locked, 1 if not");
  is_locked_command->add_option("KEY", key, "The key to check")->required();
  is_locked_command->callback([&] { use_client(is_locked, key); });

  ListArguments listing;
  auto* list_command = app.add_subcommand("list", "List the live locks with their holders and waiters");
  list_command->add_option("PREFIX", listing.prefix, "Only keys that begin with this");
  list_command->add_flag("--watch", listing.watch, "Show the list again every second, until Ctrl-C");
  list_command->callback([&] {
    if (listing.watch && json) throw CLI::ExcludesError("--watch", "--json");
    use_client(list, listing);
    default_timeout = long_timeout;
  });

  auto* watch_command =
      app.add_subcommand("watch", "Print a line whenever the holder of a lock changes; with --json, an object each");
  watch_command->add_option("KEY", key, "The key to watch")->required();
  watch_command->callback([&] { use_client(watch, key); });

  BreakArguments breaking;
  auto* break_command = app.add_subcommand("break", "Release the lock of a holder that no longer works");
  break_command->add_option("KEY", breaking.key, "The key of the lock")->required();
  add_fence(break_command, "--fence", breaking.fence, "Only if the lock has this fence; see status or list");
  break_command->add_flag("--yes", breaking.yes, "Do not ask; required unless this is a terminal");
  break_command->callback([&] { use_client(break_lock, breaking); });

  FenceArguments fencing;
  auto* fence_command = app.add_subcommand("fence", "Show the fence counter of a key, or raise it after a restore");
  fence_command->add_option("KEY", fencing.key, "The key of the counter")->required();
  add_fence(fence_command, "--raise", fencing.raise_to, "Raise the counter to at least this value; never lowers it");
  fence_command->callback([&] { use_client(fence, fencing); });

  ServeArguments serving;
  auto* serve_command = app.add_subcommand("serve", "Show the locks of the store on a web page, until Ctrl-C");
  serve_command->add_option("PREFIX", serving.prefix, "Only keys that begin with this");
  serve_command->add_option("--listen", serving.listen, "The address to listen on")
      ->type_name("ADDRESS:PORT")
      ->capture_default_str();
  serve_command
      ->add_option("--host", serving.host_names,
                   "A name of this server, besides its IP address and localhost; may be repeated")
      ->type_name("NAME")
      ->expected(1)
      ->take_all();
  serve_command
      ->add_option("--token-file", serving.token_file,
                   "A file with the token that clients must send. Required for addresses that other hosts can reach")
      ->type_name("FILE");
  serve_command->add_option("--cert", serving.certificate_file, "The certificate for TLS, with its chain; PEM")
      ->type_name("FILE");
  serve_command->add_option("--key", serving.key_file, "The private key for TLS; PEM")->type_name("FILE");
  serve_command->add_flag("--insecure", serving.insecure, "Allow addresses that other hosts can reach without TLS");
  serve_command->add_flag("--allow-break", serving.allow_break, "Let people with the token break locks on the page");
  add_duration(serve_command, "--interval", serving.interval, "How often to read the store", "1s");
  serve_command->callback([&] {
    use_client(serve, serving);
    default_timeout = long_timeout;
  });

  bool printing = false;
  auto* setup_command = app.add_subcommand("setup", "Create the tables or the file that the backend needs");
  setup_command->add_flag("--print", printing,
                          "Print the SQL that creates them, for an administrator to run, and do not connect");
  setup_command->callback([&] {
    action = [&](Locks& locks, const Output& output, std::stop_token stop) {
      return printing ? print_setup(locks, output) : setup(locks, output, std::move(stop));
    };
    default_timeout = long_timeout;
    requires_shared_store = false;
  });
  CleanupArguments cleaning;
  auto* cleanup_command = app.add_subcommand("cleanup", "Remove locks that expired long ago; fence counters are kept");
  add_duration(cleanup_command, "--older-than", cleaning.older_than,
               "Only remove locks that expired longer ago than this", "1h");
  cleanup_command->add_flag("--dry-run", cleaning.dry_run, "Only count the locks, without removing them");
  cleanup_command->callback([&] {
    use_client(cleanup, cleaning);
    default_timeout = long_timeout;
  });
  app.add_subcommand("doctor", "Check the backend and report problems and how to fix them")->callback([&] {
    action = [](Locks& locks, const Output& output, std::stop_token stop) {
      return doctor(locks, output, std::move(stop));
    };
    default_timeout = long_timeout;
    requires_shared_store = false;
  });

  app.add_subcommand("backends", "List the backends of this build")->callback([&] {
    own_action = [](const ClientOptions&, const Output& output) { return backends(output); };
    requires_shared_store = false;
  });

  for (auto* command : app.get_subcommands({})) {
    const std::string example = command == run_command ? run_example : "";
    command->footer(example + "\nGlobal options (syncguard --help): --url, --json, -q, -v.\n" + exit_codes);
  }

  const Arguments typed(argv + 1, argv + argc);
  Arguments arguments = typed;
  running.command = take_command_line(arguments, app, *run_command);
  protect_lock_ids(arguments);
  const bool json_asked = std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
  std::string command_name;
  try {
    expect_command(arguments, app);
    if (const auto word = find_command(arguments); word != arguments.end()) command_name = *word;
    std::reverse(arguments.begin(), arguments.end());  // CLI11 expects the arguments in reverse order
    try {
      app.parse(arguments);
    } catch (const CLI::ExtrasError&) {
      refuse_extras(app.remaining(true));
    }
    if (app.get_subcommands().empty()) throw CLI::RequiredError("A command");
  } catch (const CLI::ParseError& error) {
    // CLI11 reports help and version as errors with exit code 0.
    if (error.get_exit_code() == 0) {
      app.exit(error);
      return exit_yes;
    }
    auto message = without_urls(error.what(), typed);
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) message += "; is a shell variable empty?";
    const Output output(json_asked ? Format::json : Format::text, Verbosity::normal,
                        run_command->parsed() ? JsonStream::err : JsonStream::out, command_name);
    if (json_asked) {
      output.error(LockError(ErrorCode::invalid_argument, message));
    } else {
      output.error_line(message + "\nTry 'syncguard " + command_name + (command_name.empty() ? "" : " ") + "--help'.");
    }
    return exit_usage;
  }

  const bool url_given = url.has_value();
  // An empty variable must not silently select another store.
  if (!url) url = std::getenv(url_variable) == nullptr ? "sqlite:" : "";
  // A syncguard inside the command of `run` must not use another store by accident: it finds an empty URL and rejects
  // it.
  if (pass_url) {
    running.url_of_command = *url;
  } else if (url_given) {
    running.url_of_command = "";
  }
  const auto verbosity = quiet ? Verbosity::quiet : verbose ? Verbosity::verbose : Verbosity::normal;
  const auto format = json ? Format::json : Format::text;
  std::string subject = command_name;
  if (run_command->parsed()) key = running.key ? *running.key : default_key(running.command);
  if (acquire_command->parsed()) key = acquiring.key;
  if (status_command->parsed()) key = asking.key.value_or("");
  if (break_command->parsed()) key = breaking.key;
  if (fence_command->parsed()) key = fencing.key;
  if (!key.empty()) subject += " '" + key + "'";
  const Output output(format, verbosity, run_command->parsed() ? JsonStream::err : JsonStream::out, subject);
  ClientOptions options;
  options.operation_timeout = default_timeout;
  options.log = output.log();
  options.holder = default_holder(running.command.empty() ? "" : running.command[0]);
  try {
    if (url->empty() && std::getenv("SYNCGUARD_LOCK_ID") != nullptr) {
      throw LockError(ErrorCode::invalid_argument,
                      std::string(url_variable) +
                          ", the backend's URL, is empty inside 'syncguard run': set --url for this command, or add "
                          "--pass-url to the outer 'syncguard run'");
    }
    if (url->empty()) {
      throw LockError(ErrorCode::invalid_argument,
                      std::string("the backend's URL, --url or ") + url_variable + ", is empty");
    }
    if (requires_shared_store && url->starts_with("memory:")) {
      throw LockError(
          ErrorCode::invalid_argument,
          "a memory: store exists only in one process and cannot exclude other processes: use sqlite:PATH on one host, "
          "or the URL of a server");
    }
    if (own_action) return own_action(options, output);
    if (release_command->parsed() || extend_command->parsed()) lock_id = read_lock_id(lock_id);
    if (asking.lock_id) asking.lock_id = read_lock_id(*asking.lock_id);
    quiet_grpc(output);
    const StopOnSignals signals;
    auto locks = open(*url, options);
    return action(locks, output, signals.token());
  } catch (const LockError& error) {
    output.error(error);
    const int signal = error.code() == ErrorCode::aborted ? StopOnSignals::received() : 0;
    if (signal == 0) return exit_code_of(error.code());
    end_by(signal);
    // Reached only if the signal did not end this process.
    return 128 + signal;
  } catch (const std::exception& error) {
    output.error(LockError(ErrorCode::internal, error.what()));
    return exit_internal;
  }
}
