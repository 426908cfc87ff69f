#include "command/serve.hpp"

#include "command/signals.hpp"

#if SYNCGUARD_HAS_SERVE
#include "command/http_server.hpp"
#include "core/validation.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>
#endif

namespace syncguard::command {

#if SYNCGUARD_HAS_SERVE

namespace {

using core::refuse;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string content{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) refuse("cannot read " + path + ": " + std::generic_category().message(errno));
  return content;
}

BearerToken read_token(const std::string& path, const Output& output) {
  struct stat status {};
  constexpr unsigned readable_by_others = 04;
  if (stat(path.c_str(), &status) == 0 && (status.st_mode & readable_by_others) != 0) {
    output.note("warning: every user of this host can read " + path);
  }
  return BearerToken(read_file(path));
}

HttpOptions http_options(const ServeArguments& arguments, const Output& output) {
  HttpOptions options;
  options.listen = ListenAddress::parse(arguments.listen);
  options.host_names = arguments.host_names;
  if (arguments.certificate_file.empty() != arguments.key_file.empty()) refuse("TLS needs both --cert and --key");
  const bool is_local = options.listen.is_loopback();
  if (!is_local && arguments.token_file.empty()) {
    refuse(options.listen.host +
           " can be reached from other hosts: set --token-file, or listen on 127.0.0.1 and use an SSH tunnel");
  }
  if (!is_local && arguments.certificate_file.empty() && !arguments.insecure) {
    refuse(
        "without TLS, everyone on the network can read the token: set --cert and --key, or --insecure if a proxy in "
        "front of this server adds TLS");
  }
  if (arguments.allow_break && arguments.token_file.empty()) refuse("--allow-break needs --token-file");
  if (!arguments.token_file.empty()) options.token = read_token(arguments.token_file, output);
  if (!arguments.certificate_file.empty()) {
    options.certificate = read_file(arguments.certificate_file);
    options.private_key = read_file(arguments.key_file);
  }
  return options;
}

}  // namespace

ExitCode serve(Locks& locks, const ServeArguments& arguments, const Output& output, const std::stop_token& stop) {
  if (arguments.interval < std::chrono::milliseconds(100)) refuse("--interval must be at least 100ms");
  {
    const HttpServer server(
        locks, {.prefix = arguments.prefix, .interval = arguments.interval, .can_break = arguments.allow_break},
        http_options(arguments, output), [&output](const std::string& text) { output.detail(text); });
    output.result({{"url", server.url()}}, server.url());
    output.note("press Ctrl-C to end");
    sleep_until_stopped(stop);
  }
  return end_by_received_signal();
}

#else

ExitCode serve(Locks&, const ServeArguments&, const Output&, const std::stop_token&) {
  throw LockError(ErrorCode::invalid_argument,
                  "this syncguard was built without 'serve': build it with libmicrohttpd (Debian: libmicrohttpd-dev)");
}

#endif

}  // namespace syncguard::command
