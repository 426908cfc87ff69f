// The documents that waiters watch, and which waiters a message of the Listen stream wakes.
#pragma once

#include "async/event.hpp"
#include "firestore.pb.h"

#include <syncguard/error.hpp>
#include <syncguard/lock_id.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace syncguard::firestore {

// Does no I/O and has no mutex: WakeListener's mutex guards it. The caller must call the returned functions without
// that mutex.
class Watches {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Wakes = std::vector<std::function<void()>>;

  struct Watch {
    // Identifies the document in requests and reports.
    std::int32_t target;
    // Whether changes are reported from now on.
    bool is_active = false;
    bool reported_deleted = false;
    // The last known holder.
    std::optional<std::string> holder{};
    Time reported_deleted_at{};
    std::map<LockId, std::function<void()>> waiters{};
    // Set when the watch is active or has failed.
    async::Event decided{};
  };

  // Adds a waiter, or replaces the function of an existing one. Returns the watch of the document, and whether it is
  // new: the caller must then request its target.
  struct Added {
    const Watch& watch;
    bool is_new;
  };
  Added add(const std::string& document, const LockId& waiter, std::function<void()> wake);
  // Returns the target if this was the document's last waiter.
  std::optional<std::int32_t> remove(const std::string& document, const LockId& waiter);
  // Null if the document is not watched.
  [[nodiscard]] const Watch* find(const std::string& document) const;

  // Processes a response of the stream. Ignores responses about other documents, and of unknown kinds.
  Wakes received(const wire::ListenResponse& response, Time now);
  // Removes all watches, because the stream is lost. Active waiters are woken.
  Wakes end_all();

  // Whether any document was reported on since the last call of forget_reports.
  [[nodiscard]] bool has_reports() const noexcept { return has_reports_; }
  void forget_reports() noexcept { has_reports_ = false; }
  // Why the server removed a target, if it did.
  [[nodiscard]] const std::optional<LockError>& failure() const noexcept { return failure_; }
  void set_failure(std::optional<LockError> failure) { failure_ = std::move(failure); }

 private:
  Wakes apply(const wire::TargetChange& change);
  // The lock has this holder, or was deleted if there is none.
  Wakes changed(const std::string& document, const std::optional<std::string>& holder, Time now);
  Wakes counted(const wire::ExistenceFilter& filter, Time now);
  static void end_watch(const Watch& watch, Wakes& wakes);
  static void add_wakes(const Watch& watch, Wakes& wakes);

  std::map<std::string, Watch> watches_;
  std::int32_t next_target_ = 1;
  bool has_reports_ = false;
  std::optional<LockError> failure_;
};

}  // namespace syncguard::firestore
