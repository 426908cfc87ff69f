#include "command/observer.hpp"

#include "command/json.hpp"
#include "command/output.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace syncguard::command {
namespace {

using namespace std::chrono_literals;
using nlohmann::ordered_json;

constexpr std::size_t max_events = 256;
constexpr std::size_t max_events_size = 8U << 20U;
constexpr std::size_t max_tasks = 16;
constexpr std::chrono::milliseconds max_pause_after_error = 30s;

std::string text_of(const ordered_json& object) {
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string event_text(std::string_view name, const std::string& json) {
  return "event: " + std::string(name) + "\ndata: " + json + "\n\n";
}

ordered_json change_json(const LockChange& change) {
  ordered_json object = {{"atMs", millis(change.at)}, {"key", change.key}};
  if (change.fence != Fence{}) object.update({{"holder", change.holder}, {"fence", change.fence.str()}});
  if (change.previous_fence != Fence{}) {
    object.update({{"previousHolder", change.previous_holder}, {"previousFence", change.previous_fence.str()}});
  }
  return object;
}

template <typename Range, typename Function>
ordered_json array_of(const Range& range, Function json_of) {
  auto array = ordered_json::array();
  for (const auto& item : range) array.push_back(json_of(item));
  return array;
}

void add_findings(ordered_json& object, const std::vector<Finding>& findings, Timestamp at) {
  object["findings"] = array_of(findings, finding_json);
  object["checkedAtMs"] = findings.empty() ? ordered_json(nullptr) : ordered_json(millis(at));
}

ordered_json shown_problem(const std::string& problem) {
  return problem.empty() ? ordered_json(nullptr) : ordered_json(problem);
}

std::string description_of(const std::exception& error) {
  const auto* lock_error = dynamic_cast<const LockError*>(&error);
  return lock_error != nullptr ? message_with_causes(*lock_error) : error.what();
}

// The value of a label: Prometheus escapes only these three.
std::string label(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return escaped;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

}  // namespace

Observer::Observer(Locks locks, ObserverOptions options, std::function<void()> on_event)
    : locks_(std::move(locks)), options_(std::move(options)), on_event_(std::move(on_event)) {
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void Observer::stop() {
  {
    // No task can be added after the thread has run the last one.
    const std::lock_guard lock(mutex_);
    thread_.request_stop();
  }
  if (thread_.joinable()) thread_.join();
}

void Observer::run(const std::stop_token& stop) {
  auto next_diagnosis = Clock::now();
  auto pause = options_.interval;
  while (!stop.stop_requested()) {
    const auto start = Clock::now();
    try {
      scan(stop);
      const auto took = std::chrono::ceil<std::chrono::milliseconds>(Clock::now() - start);
      pause = std::max(options_.interval, 3 * took);
    } catch (const std::exception& error) {
      if (stop.stop_requested()) break;
      set_problem(description_of(error));
      pause = std::min(2 * pause, std::max(max_pause_after_error, options_.interval));
    }
    if (Clock::now() >= next_diagnosis && !stop.stop_requested()) {
      diagnose(stop);
      next_diagnosis = Clock::now() + options_.diagnosis_interval;
    }
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, stop, pause, [this] { return !tasks_.empty(); });
    lock.unlock();
    run_tasks(stop);
  }
  run_tasks(stop);
}

void Observer::run_tasks(const std::stop_token& stop) {
  for (;;) {
    std::unique_lock lock(mutex_);
    if (tasks_.empty()) return;
    const auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task(locks_, stop);
  }
}

bool Observer::post(std::function<void(const Locks&, const std::stop_token&)> task) {
  const std::lock_guard lock(mutex_);
  if (tasks_.size() >= max_tasks || thread_.get_stop_token().stop_requested()) return false;
  tasks_.push_back(std::move(task));
  changed_.notify_all();
  return true;
}

void Observer::scan(const std::stop_token& stop) {
  const auto start = Clock::now();
  auto scan = scan_locks(locks_.admin(), options_.prefix, Scan::max_locks, stop, [&] { run_tasks(stop); });

  std::unique_lock lock(mutex_);
  const auto update = history_.apply(std::move(scan));
  scanned_at_ = Clock::now();
  scan_took_ = scanned_at_ - start;
  const bool was_problem = !std::exchange(problem_, {}).empty();
  if (update.is_empty() && !was_problem) return;
  publish("update", text_of({{"nowMs", millis(history_.latest().now)},
                             {"total", history_.latest().total},
                             {"problem", nullptr},
                             {"set", array_of(update.set, lock_json)},
                             {"removed", update.removed},
                             {"changes", array_of(update.changes, change_json)}}));
  lock.unlock();
  on_event_();
}

void Observer::diagnose(const std::stop_token& stop) {
  std::vector<Finding> findings;
  try {
    findings = locks_.admin().diagnose(stop);
  } catch (const std::exception& error) {
    if (stop.stop_requested()) return;
    findings = {{Finding::Verdict::failure, "diagnosis", description_of(error), ""}};
  }
  std::unique_lock lock(mutex_);
  findings_ = std::move(findings);
  diagnosed_at_ = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  ordered_json object;
  add_findings(object, findings_, diagnosed_at_);
  publish("findings", text_of(object));
  lock.unlock();
  on_event_();
}

void Observer::set_problem(std::string problem) {
  std::unique_lock lock(mutex_);
  ++scans_failed_;
  if (problem_ == problem) return;
  problem_ = std::move(problem);
  publish("problem", text_of({{"problem", problem_}}));
  lock.unlock();
  on_event_();
}

void Observer::publish(std::string_view name, const std::string& json) {
  events_.push_back({++last_number_, std::make_shared<const std::string>(event_text(name, json))});
  events_size_ += events_.back().text->size();
  while (events_.size() > max_events || events_size_ > max_events_size) {
    events_size_ -= events_.front().text->size();
    events_.pop_front();
  }
}

std::string Observer::whole_state() const {
  ordered_json object = {
      {"backend", locks_.capabilities().name},
      {"prefix", options_.prefix},
      {"canBreak", options_.can_break},
      {"total", has_scanned() ? ordered_json(history_.latest().total) : ordered_json(nullptr)},
      {"problem", shown_problem(problem_)},
      {"locks", array_of(history_.latest().locks, [](const auto& entry) { return lock_json(entry.second); })},
      {"changes", array_of(history_.changes(), change_json)}};
  add_findings(object, findings_, diagnosed_at_);
  return event_text("state", text_of(object));
}

std::optional<Observer::Event> Observer::next_event(std::uint64_t after) {
  const std::lock_guard lock(mutex_);
  if (after != 0 && after == last_number_) return std::nullopt;
  if (after != 0 && !events_.empty() && after + 1 >= events_.front().number) {
    return events_[after + 1 - events_.front().number];
  }
  // Nothing was read yet.
  if (last_number_ == 0) return std::nullopt;
  const bool can_follow =
      state_.number == last_number_ || (!events_.empty() && state_.number + 1 >= events_.front().number);
  if (state_.text == nullptr || !can_follow) {
    state_ = {last_number_, std::make_shared<const std::string>(whole_state())};
  }
  return state_;
}

std::string Observer::clock_event() const {
  const std::lock_guard lock(mutex_);
  const auto since_scan = std::chrono::floor<std::chrono::milliseconds>(Clock::now() - scanned_at_);
  // Before the first scan, there is no clock to compare with.
  const auto now = !has_scanned() ? Timestamp{} : history_.latest().now + since_scan;
  return event_text("clock", text_of({{"nowMs", millis(now)}}));
}

std::optional<std::string> Observer::locks_page(std::string_view prefix, std::string_view cursor,
                                                std::size_t limit) const {
  const std::lock_guard lock(mutex_);
  if (!has_scanned()) return std::nullopt;
  const auto& locks = history_.latest().locks;
  const std::string first(prefix);
  auto place = cursor.empty() ? locks.lower_bound(first) : locks.upper_bound(std::max(first, std::string(cursor)));
  auto page = ordered_json::array();
  std::string next;
  for (; place != locks.end() && place->first.starts_with(prefix); ++place) {
    if (page.size() == limit) {
      next = std::prev(place)->first;
      break;
    }
    page.push_back(lock_json(place->second));
  }
  return text_of({{"nowMs", millis(history_.latest().now)},
                  {"total", history_.latest().total},
                  {"problem", shown_problem(problem_)},
                  {"locks", std::move(page)},
                  {"cursor", next}});
}

std::string Observer::metrics() const {
  const std::lock_guard lock(mutex_);
  const auto& scan = history_.latest();
  std::string text;
  const std::string backend = "backend=\"" + label(locks_.capabilities().name) + "\"";
  const auto metric = [&](const std::string& name, const char* help, double value, const std::string& labels = "") {
    if (text.find("# HELP " + name + " ") == std::string::npos) {
      text +=
          "# HELP " + name + " " + help + "\n# TYPE " + name + (name.ends_with("_total") ? " counter\n" : " gauge\n");
    }
    text += name + "{" + backend + labels + "} " + number(value) + "\n";
  };

  metric("syncguard_store_up", "1 if the last scan of the store succeeded.", problem_.empty() ? 1 : 0);
  metric("syncguard_store_scans_failed_total", "Scans of the store that failed.", static_cast<double>(scans_failed_));
  for (const auto& finding : findings_) {
    metric("syncguard_store_finding", "What doctor found: 0 fine, 1 warning, 2 failure.",
           static_cast<double>(finding.verdict), ",check=\"" + label(finding.check) + "\"");
  }
  // Numbers of an earlier scan would look current.
  if (!problem_.empty()) return text;
  std::size_t waiters = 0;
  auto oldest = scan.now;
  for (const auto& [key, held] : scan.locks) {
    waiters += held.waiters.value_or(0);
    oldest = std::min(oldest, held.acquired_at);
  }
  metric("syncguard_store_locks", "Live locks in the store.", static_cast<double>(scan.total));
  metric("syncguard_store_waiters", "Clients that wait for a lock, where the store keeps a queue.",
         static_cast<double>(waiters));
  metric("syncguard_store_oldest_hold_seconds", "How long the oldest live lock has been held; 0 without locks.",
         std::chrono::duration<double>(scan.now - oldest).count());
  metric("syncguard_store_scan_duration_seconds", "How long the last scan took.", scan_took_.count());
  metric("syncguard_store_scan_age_seconds", "How long ago the last scan ended.",
         std::chrono::duration<double>(Clock::now() - scanned_at_).count());
  return text;
}

std::string Observer::problem() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}

}  // namespace syncguard::command
