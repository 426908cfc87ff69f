/// \file
/// Internal: the operations of a client, as data. A blocking call and its asynchronous counterpart start the same
/// operation; perform() in src/locks/operations.cpp performs it.
#pragma once

#include <syncguard/admin_types.hpp>
#include <syncguard/diagnosis.hpp>
#include <syncguard/export.hpp>
#include <syncguard/fence.hpp>
#include <syncguard/key.hpp>
#include <syncguard/lock_id.hpp>
#include <syncguard/lock_info.hpp>
#include <syncguard/options.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace syncguard {
inline namespace v0_1 {

struct Callbacks;
class Lease;
class TryResult;

namespace detail {

class Client;
class LeaseState;
using ClientPtr = std::shared_ptr<Client>;
using CallbacksPtr = std::shared_ptr<const Callbacks>;

// Each operation has its arguments, its Result, and the name of its asynchronous form, for callers that must not block.

struct TryAcquire {
  using Result = TryResult;
  static constexpr std::string_view async_name = "async_try_acquire";
  CallbacksPtr callbacks;
  Key key;
  TryOptions options;
};

struct Acquire {
  using Result = Lease;
  static constexpr std::string_view async_name = "async_acquire";
  CallbacksPtr callbacks;
  Key key;
  AcquireOptions options;
};

struct Adopt {
  using Result = TryResult;
  static constexpr std::string_view async_name = "async_adopt";
  CallbacksPtr callbacks;
  LockId id;
  AdoptOptions options;
};

struct Release {
  using Result = bool;
  static constexpr std::string_view async_name = "async_release";
  LockId id;
};

struct Extend {
  using Result = std::optional<Timestamp>;
  static constexpr std::string_view async_name = "async_extend";
  LockId id;
  std::chrono::milliseconds ttl;
};

struct IsLocked {
  using Result = bool;
  static constexpr std::string_view async_name = "async_is_locked";
  Key key;
};

// By: Key or LockId.
template <typename By>
struct Lookup {
  using Result = std::optional<LockInfo>;
  static constexpr std::string_view async_name = "async_lookup";
  By by;
};

template <typename By>
struct LookupRaw {
  using Result = std::optional<LockRecord>;
  static constexpr std::string_view async_name = "the asynchronous form";
  By by;
};

struct Owns {
  using Result = bool;
  static constexpr std::string_view async_name = "async_owns";
  LockId id;
};

struct List {
  using Result = LockPage;
  static constexpr std::string_view async_name = "async_list";
  // Copies of the texts in ListOptions.
  explicit List(const ListOptions& options) : prefix(options.prefix), limit(options.limit), cursor(options.cursor) {}
  std::string prefix;
  std::size_t limit;
  std::string cursor;
};

struct Inspect {
  using Result = KeyState;
  static constexpr std::string_view async_name = "async_inspect";
  Key key;
};

// The state of the key as soon as it differs from the last one; at once if there is none.
struct NextChange {
  using Result = KeyState;
  static constexpr std::string_view async_name = "async_watch";
  Key key;
  WatchOptions options;
  std::optional<KeyState> last;
};

struct BreakLock {
  using Result = bool;
  static constexpr std::string_view async_name = "async_break_lock";
  Key key;
  Fence fence;
};

struct RaiseFence {
  using Result = Fence;
  static constexpr std::string_view async_name = "async_raise_fence";
  Key key;
  Fence fence;
};

struct CleanUp {
  using Result = CleanupReply;
  static constexpr std::string_view async_name = "async_clean_up";
  CleanupRequest request;
};

struct Diagnose {
  using Result = std::vector<Finding>;
  static constexpr std::string_view async_name = "async_diagnose";
};

struct Setup {
  using Result = std::string;
  static constexpr std::string_view async_name = "async_setup";
};

struct Close {
  using Result = bool;
  static constexpr std::string_view async_name = "async_close";
};

// The lease may be null: the Lease is empty.
struct ExtendLease {
  using Result = bool;
  static constexpr std::string_view async_name = "async_extend";
  std::shared_ptr<LeaseState> lease;
  std::chrono::milliseconds ttl;
};

struct ReleaseLease {
  using Result = bool;
  static constexpr std::string_view async_name = "async_release";
  std::shared_ptr<LeaseState> lease;
};

struct ReleaseLeaseWithRetries {
  using Result = bool;
  static constexpr std::string_view async_name = "async_release_with_retries";
  std::shared_ptr<LeaseState> lease;
};

// Starts operations with a completion token. Defined in <syncguard/async.hpp>, because it needs Asio.
template <typename CompletionToken>
struct Asynchronous;

template <typename Type>
concept Defined = requires {
  sizeof(Type);
};

// Without that header, one error that names it.
template <typename CompletionToken>
struct WithAsyncHeader {
  static_assert(Defined<Asynchronous<CompletionToken>>, "asynchronous calls need #include <syncguard/async.hpp>");
};

template <typename Operation, typename CompletionToken>
auto start(ClientPtr client, Operation operation, CompletionToken&& token) {
  return (void)WithAsyncHeader<CompletionToken>(),
         Asynchronous<CompletionToken>::start(std::move(client), std::move(operation),
                                              std::forward<CompletionToken>(token));
}

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
