#include "backends/firestore/channel.hpp"

#include "async/fork.hpp"
#include "core/percent_encoding.hpp"
#include "firestore.pb.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <optional>
#include <system_error>

namespace syncguard::firestore {
namespace {

// gRPC's threads do not follow a fork, and its descriptors are shared by it.
void expect_no_fork_since_first_use() {
  static const unsigned first_user = async::fork_generation();
  if (async::fork_generation() == first_user) return;
  throw LockError(ErrorCode::invalid_argument,
                  "a process that was forked after its parent had used Firestore cannot use it: fork before, or exec");
}

grpc::ChannelArguments arguments(const Endpoint& endpoint) {
  constexpr int kibibyte = 1024;
  grpc::ChannelArguments arguments;
  // gRPC's own would leave a server that was restarted alone for up to two minutes. (The minimum is how long one
  // attempt to connect may take.)
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // A network that swallows everything is noticed by those who wait for a change.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // no limit
  // No document of ours comes near it; those of others have at most a mebibyte.
  arguments.SetMaxReceiveMessageSize(2 * kibibyte * kibibyte);
  if (endpoint.is_emulator) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

// gRPC 1.51 ends the threads that call us with the last channel that uses them, and crashes where such a thread is the
// one that lets go of it. So a channel that leads nowhere uses them too, and is never let go.
const std::shared_ptr<grpc::Channel>& channel_to_nowhere() {
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

std::shared_ptr<grpc::Channel> make_channel(const Endpoint& endpoint) {
  const auto credentials = endpoint.is_emulator ? grpc::InsecureChannelCredentials() : grpc::GoogleDefaultCredentials();
  if (!credentials) {
    throw LockError(ErrorCode::auth_failed,
                    "there are no credentials for Google Cloud: set GOOGLE_APPLICATION_CREDENTIALS to a key file, run "
                    "`gcloud auth application-default login`, or name an emulator by FIRESTORE_EMULATOR_HOST");
  }
  if (!channel_to_nowhere()) throw LockError(ErrorCode::internal, "gRPC has no threads to call us");
  return grpc::CreateCustomChannel(endpoint.address, credentials, arguments(endpoint));
}

}  // namespace

// Shared with the thread that makes the channel, which may come back when nobody waits any more.
struct Channel::Opening {
  std::mutex mutex;
  bool done = false;
  std::shared_ptr<grpc::Channel> channel;
  std::optional<LockError> failure;
  std::vector<std::shared_ptr<async::WakeUp>> waiting;

  void finish(std::shared_ptr<grpc::Channel> made, std::optional<LockError> error) {
    const std::lock_guard lock(mutex);
    done = true;
    channel = std::move(made);
    failure = std::move(error);
    for (const auto& wake_up : std::exchange(waiting, {})) wake_up->wake();
  }
};

Channel::Channel(Endpoint endpoint)
    : endpoint_(std::move(endpoint)),
      database_name_(endpoint_.database_name()),
      routing_("project_id=" + core::percent_encoded(endpoint_.project) +
               "&database_id=" + core::percent_encoded(endpoint_.database)) {}

asio::awaitable<std::shared_ptr<grpc::Channel>> Channel::open(CallLimits limits) {
  expect_no_fork_since_first_use();
  std::shared_ptr<Opening> opening;
  const auto ended = std::make_shared<async::WakeUp>();
  {
    const std::lock_guard lock(mutex_);
    if (const auto previous = opening_) {
      const std::lock_guard previous_lock(previous->mutex);
      if (previous->done && previous->channel) co_return previous->channel;
      // Credentials that were not there may be by now.
      if (previous->done) opening_.reset();
    }
    if (!opening_) {
      opening_ = std::make_shared<Opening>();
      try {
        async::start_thread("syncguard-grpc", [opened = opening_, endpoint = endpoint_] {
          try {
            opened->finish(make_channel(endpoint), std::nullopt);
          } catch (const LockError& error) {
            opened->finish(nullptr, error);
          } catch (const std::exception&) {
            opened->finish(nullptr, LockError(ErrorCode::internal, "gRPC could not be used", Effect::none,
                                              {.cause = std::current_exception()}));
          }
        }).detach();
      } catch (const std::system_error&) {
        opening_.reset();
        throw LockError(ErrorCode::service_unavailable, "no thread could be started to connect to Firestore");
      }
    }
    opening = opening_;
    const std::lock_guard opening_lock(opening->mutex);
    if (opening->done) {
      ended->wake();
    } else {
      opening->waiting.push_back(ended);
    }
  }
  const auto reason = co_await ended->wait(limits.deadline, limits.stop);
  async::expect_woken(reason, "credentials for Google Cloud were not found in time");
  const std::lock_guard lock(opening->mutex);
  if (opening->failure) throw LockError(*opening->failure);
  co_return opening->channel;
}

asio::awaitable<void> Channel::close(CallLimits limits) {
  const auto ended = std::make_shared<async::WakeUp>();
  {
    const std::lock_guard lock(mutex_);
    if (!opening_) co_return;
    const std::lock_guard opening_lock(opening_->mutex);
    if (opening_->done) co_return;
    opening_->waiting.push_back(ended);
  }
  co_await ended->wait(limits.deadline, limits.stop);
}

void Channel::prepare(grpc::ClientContext& context, Deadline deadline) const {
  context.AddMetadata("google-cloud-resource-prefix", database_name_);
  context.AddMetadata("x-goog-request-params", routing_);
  if (endpoint_.is_emulator) context.AddMetadata("authorization", "Bearer owner");
  if (deadline == Deadline::max()) return;
  context.set_deadline(std::chrono::system_clock::now() + (deadline - std::chrono::steady_clock::now()));
}

}  // namespace syncguard::firestore
