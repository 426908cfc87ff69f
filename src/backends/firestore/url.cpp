#include "backends/url.hpp"

#include "core/validation.hpp"

#include <string_view>
#include <utility>

namespace syncguard::firestore {
namespace {

using core::refuse;

}  // namespace

FirestoreOptions options_of(BackendUrl& url) {
  FirestoreOptions options;
  std::string_view rest = url.rest();
  if (!rest.empty()) {
    if (!rest.starts_with("//")) refuse("a Firestore URL must be written firestore://PROJECT/DATABASE");
    rest.remove_prefix(2);
    const auto slash = rest.find('/');
    options.project = BackendUrl::decode(rest.substr(0, slash));
    if (slash != std::string_view::npos && slash + 1 < rest.size()) {
      options.database = BackendUrl::decode(rest.substr(slash + 1));
    }
  }
  options.collection = url.take_text("collection").value_or(options.collection);
  options.fence_collection = url.take_text("fence_collection").value_or(options.fence_collection);
  options.emulator = url.take_text("emulator").value_or("");
  options.endpoint = url.take_text("endpoint").value_or(options.endpoint);
  options.allow_endpoint = url.take_text("allow_endpoint").value_or("");
  options.operation_timeout = url.take_duration("operation_timeout");
  options.connect_timeout = url.take_duration("connect_timeout");
  options.fences = take_fences(url);
  options.cleanup_in_is_locked = url.take_flag("cleanup_in_is_locked").value_or(options.cleanup_in_is_locked);
  return options;
}

std::unique_ptr<Backend> from_url(BackendUrl& url, const BackendContext& context) {
  auto options = options_of(url);
  if (context.operation_timeout) options.operation_timeout = context.operation_timeout;
  return make_firestore_backend(std::move(options), context.log);
}

}  // namespace syncguard::firestore
