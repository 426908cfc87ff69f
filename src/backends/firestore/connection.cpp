#include "backends/firestore/connection.hpp"

#include "backends/firestore/credentials.hpp"
#include "core/encodings.hpp"
#include "firestore.pb.h"
#include "os/fork.hpp"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <optional>
#include <system_error>

namespace syncguard::firestore {
namespace {

// After a fork, gRPC's threads do not exist in the child, and its descriptors are shared with the parent.
void expect_no_fork_since_first_use() {
  static const unsigned generation_of_first_use = os::fork_generation();
  if (os::fork_generation() == generation_of_first_use) return;
  throw LockError(
      ErrorCode::invalid_argument,
      "Firestore cannot be used in a process that was forked after its parent used it: fork earlier, or exec");
}

grpc::ChannelArguments channel_arguments(const Endpoint& endpoint, std::chrono::milliseconds connect_timeout) {
  constexpr int mebibyte = 1024 * 1024;
  // How long one attempt to connect may take, which gRPC calls the minimum backoff.
  const auto attempt_timeout =
      std::clamp(connect_timeout, std::chrono::milliseconds(5000), std::chrono::milliseconds(20'000));
  grpc::ChannelArguments arguments;
  // With gRPC's default backoff, reconnecting to a restarted server takes up to two minutes.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(attempt_timeout.count()));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // Detects a dead network while callers wait for changes.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // no limit
  // SyncGuard's documents are far smaller; any document has at most 1 MiB.
  arguments.SetMaxReceiveMessageSize(2 * mebibyte);
  if (endpoint.is_emulator) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

// gRPC 1.51 ends its callback threads with the last channel that uses them, and crashes if such a thread destroys that
// channel. So an unconnected channel, which is never destroyed, also uses them: its call starts the threads.
const std::shared_ptr<grpc::Channel>& unconnected_channel() {
  static const auto* const kept = [] {
    const auto* channel = new std::shared_ptr<grpc::Channel>(grpc::CreateChannel("", nullptr));
    using wire::CommitRequest;
    using wire::CommitResponse;
    std::make_shared<Call<CommitRequest, CommitResponse>>(CommitRequest())
        ->start(*channel, Method<CommitRequest, CommitResponse>{"/"});
    return channel;
  }();
  return *kept;
}

// Finds credentials, which may take a request to the metadata server. gRPC connects the channel at the first call.
OpenChannel open_channel(const Endpoint& endpoint, std::chrono::milliseconds timeout) {
  const auto found =
      endpoint.is_emulator ? Credentials{grpc::InsecureChannelCredentials(), ""}
      : endpoint.credentials.empty()
          ? find_default_credentials(endpoint.allow_endpoint)
          : make_credentials(endpoint.credentials, "FirestoreOptions::credentials", endpoint.allow_endpoint);
  if (!unconnected_channel()) throw LockError(ErrorCode::internal, "gRPC cannot start its threads");
  return {grpc::CreateCustomChannel(endpoint.address, found.channel, channel_arguments(endpoint, timeout)),
          found.quota_project};
}

// Like open_channel, but throws only LockError.
OpenChannel open_channel_checked(const Endpoint& endpoint, std::chrono::milliseconds timeout) {
  try {
    return open_channel(endpoint, timeout);
  } catch (const LockError&) {
    throw;
  } catch (const std::exception&) {
    throw LockError(ErrorCode::internal, "gRPC could not be initialized", Effect::none,
                    {.cause = std::current_exception()});
  }
}

}  // namespace

Connection::Connection(Endpoint endpoint, std::chrono::milliseconds connect_timeout)
    : endpoint_(std::move(endpoint)),
      connect_timeout_(connect_timeout),
      database_name_(endpoint_.database_name()),
      routing_("project_id=" + core::percent_encoded(endpoint_.project) +
               "&database_id=" + core::percent_encoded(endpoint_.database)) {}

CallLimits Connection::with_time_to_connect(CallLimits limits) const {
  // A deadline may be "never".
  if (!was_answered_ && limits.deadline < Deadline::max() - connect_timeout_) limits.deadline += connect_timeout_;
  return limits;
}

asio::awaitable<OpenChannel> Connection::open(CallLimits limits) {
  expect_no_fork_since_first_use();
  std::optional<async::Promise<OpenChannel>> opening;
  {
    const std::lock_guard lock(mutex_);
    // Missing credentials may exist by now, so try again.
    if (opening_ && opening_->is_ready() && opening_->has_error()) opening_.reset();
    if (!opening_) {
      opening_.emplace();
      try {
        os::start_thread("syncguard-grpc", [opened = *opening_, endpoint = endpoint_, timeout = connect_timeout_] {
          opened.set_from([&] { return open_channel_checked(endpoint, timeout); });
        }).detach();
      } catch (const std::system_error&) {
        opening_.reset();
        throw LockError(ErrorCode::service_unavailable, "cannot start a thread to connect to Firestore");
      }
    }
    opening = opening_;
  }
  co_await opening->ready().wait(limits, "timed out looking for Google Cloud credentials");
  co_return opening->value();
}

bool Connection::is_connected() noexcept {
  const std::lock_guard lock(mutex_);
  if (!opening_ || !opening_->is_ready() || opening_->has_error()) return false;
  return opening_->value().channel->GetState(false) == GRPC_CHANNEL_READY;
}

asio::awaitable<void> Connection::close(CallLimits limits) {
  std::optional<async::Promise<OpenChannel>> opening;
  {
    const std::lock_guard lock(mutex_);
    opening = opening_;
  }
  if (opening) (void)co_await opening->ready().wait(limits.deadline, limits.stop);
}

void Connection::prepare(grpc::ClientContext& context, const OpenChannel& channel, Deadline deadline) const {
  context.AddMetadata("google-cloud-resource-prefix", database_name_);
  context.AddMetadata("x-goog-request-params", routing_);
  if (!channel.quota_project.empty()) context.AddMetadata("x-goog-user-project", channel.quota_project);
  if (endpoint_.is_emulator) context.AddMetadata("authorization", "Bearer owner");
  if (deadline == Deadline::max()) return;
  // gRPC takes deadlines on the system clock.
  context.set_deadline(std::chrono::system_clock::now() + (deadline - std::chrono::steady_clock::now()));
}

}  // namespace syncguard::firestore
