#include "backends/firestore/watches.hpp"

#include "backends/firestore/errors.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace syncguard::firestore {
namespace {

// The holder of the lock; empty text if the document is not a lock.
std::string holder_in(const wire::Document& document) {
  const auto& fields = document.fields();
  const auto found = fields.find("lockId");
  return found == fields.end() ? "" : found->second.string_value();
}

}  // namespace

Watches::Added Watches::add(const std::string& document, const LockId& waiter, std::function<void()> wake) {
  auto [entry, is_new] = watches_.try_emplace(document, Watch{.target = next_target_});
  if (is_new) next_target_ = next_target_ % std::numeric_limits<std::int32_t>::max() + 1;
  entry->second.waiters.insert_or_assign(waiter, std::move(wake));
  return {entry->second, is_new};
}

std::optional<std::int32_t> Watches::remove(const std::string& document, const LockId& waiter) {
  const auto found = watches_.find(document);
  if (found == watches_.end()) return std::nullopt;
  found->second.waiters.erase(waiter);
  if (!found->second.waiters.empty()) return std::nullopt;
  const auto target = found->second.target;
  watches_.erase(found);
  return target;
}

const Watches::Watch* Watches::find(const std::string& document) const {
  const auto found = watches_.find(document);
  return found == watches_.end() ? nullptr : &found->second;
}

Watches::Wakes Watches::received(const wire::ListenResponse& response, Time now) {
  switch (response.response_type_case()) {
    case wire::ListenResponse::kTargetChange:
      return apply(response.target_change());
    case wire::ListenResponse::kDocumentDelete:
      return changed(response.document_delete().document(), {}, now);
    case wire::ListenResponse::kDocumentRemove:
      return changed(response.document_remove().document(), {}, now);
    case wire::ListenResponse::kDocumentChange:
      return changed(response.document_change().document().name(), holder_in(response.document_change().document()),
                     now);
    case wire::ListenResponse::kFilter:
      return counted(response.filter(), now);
    default:
      return {};
  }
}

Watches::Wakes Watches::apply(const wire::TargetChange& change) {
  using Change = wire::TargetChange;
  const auto concerns = [&](const Watch& watch) {
    const auto& targets = change.target_ids();
    // An empty list means all targets.
    return targets.empty() || std::ranges::find(targets, watch.target) != targets.end();
  };
  Wakes wakes;
  switch (change.target_change_type()) {
    case Change::CURRENT:
      for (auto& [document, watch] : watches_) {
        if (!concerns(watch)) continue;
        watch.is_active = true;
        has_reports_ = true;
        watch.decided.set();
      }
      break;
    case Change::RESET:
      // Changes that precede it may never be reported.
      for (auto& [document, watch] : watches_) {
        if (!concerns(watch)) continue;
        watch.reported_deleted = false;
        add_wakes(watch, wakes);
      }
      break;
    case Change::REMOVE:
      // Removed by the server. Targets that we removed are no longer in the map.
      if (change.has_cause()) {
        failure_ = read_error(grpc::Status(status_code(change.cause().code()), change.cause().message()));
      }
      for (auto watch = watches_.begin(); watch != watches_.end();) {
        if (concerns(watch->second)) {
          end_watch(watch->second, wakes);
          watch = watches_.erase(watch);
        } else {
          ++watch;
        }
      }
      break;
    default:
      break;
  }
  return wakes;
}

Watches::Wakes Watches::changed(const std::string& document, const std::optional<std::string>& holder, Time now) {
  const auto found = watches_.find(document);
  if (found == watches_.end()) return {};
  auto& watch = found->second;
  watch.reported_deleted = !holder;
  // If locks change hands quickly, a deletion may never be reported; a change of holder is, and wakes waiters, too.
  const bool holder_changed = holder && watch.holder && *holder != *watch.holder;
  if (holder) watch.holder = holder;
  if (holder && !holder_changed) return {};
  watch.reported_deleted_at = now;
  Wakes wakes;
  add_wakes(watch, wakes);
  return wakes;
}

// Reports the number of existing documents of a target, which has only one: 0 means that it was deleted.
Watches::Wakes Watches::counted(const wire::ExistenceFilter& filter, Time now) {
  if (filter.count() != 0) return {};
  const auto found =
      std::ranges::find_if(watches_, [&](const auto& entry) { return entry.second.target == filter.target_id(); });
  return found == watches_.end() ? Wakes() : changed(found->first, {}, now);
}

Watches::Wakes Watches::end_all() {
  Wakes wakes;
  for (const auto& [document, watch] : std::exchange(watches_, {})) end_watch(watch, wakes);
  return wakes;
}

void Watches::end_watch(const Watch& watch, Wakes& wakes) {
  watch.decided.set();
  // Waiters whose target is not active yet are not woken, because their join fails.
  if (watch.is_active) add_wakes(watch, wakes);
}

void Watches::add_wakes(const Watch& watch, Wakes& wakes) {
  for (const auto& [waiter, wake] : watch.waiters) wakes.push_back(wake);
}

}  // namespace syncguard::firestore
