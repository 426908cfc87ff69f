// syncguard: locks for shell scripts, cron jobs and deployments.

#include "command/commands.hpp"
#include "command/signals.hpp"
#include "core/duration.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <functional>
#include <string_view>

namespace {

using namespace syncguard;
using namespace syncguard::command;

constexpr const char* exit_codes = R"(
Exit codes: 0 yes; 1 no (not released, not extended, not locked); 2 usage or bad argument;
69 the backend is unavailable or too slow; 70 internal error; 75 locked by somebody else;
77 not permitted; 130 interrupted.

Durations read 500ms, 30s, 5m, 1h30m.)";

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

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Locks between processes, on one machine or many.");
  app.name("syncguard");
  app.footer(exit_codes);
  app.set_version_flag("--version", "syncguard " SYNCGUARD_VERSION);
  // Not required by CLI11, which would say that one is missing where it is only misspelt.
  app.require_subcommand(0, 1);
  app.fallthrough();

  std::string url;
  bool json = false;
  bool quiet = false;
  app.add_option("--url", url,
                 "The backend; also from SYNCGUARD_URL. Without one: SQLite in your state folder, which serves all "
                 "processes of this host")
      ->envname("SYNCGUARD_URL");
  app.add_flag("--json", json, "Print exactly one JSON object");
  app.add_flag("-q,--quiet", quiet, "Print results and errors only");

  using Action = std::function<ExitCode(Locks&, const Output&, std::stop_token)>;
  Action action;
  bool show_backends = false;

  AcquireArguments acquiring;
  auto* acquire_command =
      app.add_subcommand("acquire", "Acquire a lock and print its id, which is needed to release it");
  acquire_command->add_option("KEY", acquiring.key, "What to lock")->required();
  add_duration(acquire_command, "--ttl", acquiring.ttl, "How long the lock lives unless it is extended", "30s");
  add_duration(acquire_command, "--wait", acquiring.wait, "How long to wait for it", "0s");
  acquire_command->callback([&] {
    action = [&](Locks& locks, const Output& output, std::stop_token stop) {
      return acquire(locks, acquiring, output, std::move(stop));
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
    if (asking.key.empty() && asking.lock_id.empty()) throw CLI::RequiredError("KEY or --id");
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

  app.add_subcommand("backends", "Say which backends this build contains")->callback([&] { show_backends = true; });

  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) throw CLI::RequiredError("A command");
  } catch (const CLI::ParseError& error) {
    // Help and version are errors to CLI11, with the code of success.
    const bool wrong = error.get_exit_code() != 0;
    if (wrong && std::find(argv, argv + argc, std::string_view("--json")) != argv + argc) {
      Output(true, Verbosity::normal).error(LockError(ErrorCode::invalid_argument, error.what()));
    } else {
      app.exit(error);
    }
    return wrong ? exit_usage : exit_yes;
  }

  const Output output(json, quiet ? Verbosity::quiet : Verbosity::normal);
  try {
    if (show_backends) return backends(output);
    const auto stop = stop_on_signals();
    auto locks = open(url.empty() ? "sqlite:" : url);
    return action(locks, output, stop);
  } catch (const LockError& error) {
    output.error(error);
    return exit_code_of(error.code());
  } catch (const std::exception& error) {
    output.error(LockError(ErrorCode::internal, error.what()));
    return exit_internal;
  }
}
