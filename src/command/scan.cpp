#include "command/scan.hpp"

#include <iterator>
#include <utility>

namespace syncguard::command {

void Scan::add(LockPage page) {
  now = page.now;
  for (auto& lock : page.locks) {
    const auto [place, is_new] = locks.insert_or_assign(lock.key.str(), std::move(lock));
    if (is_new) ++total;
    if (locks.size() > limit) locks.erase(std::prev(locks.end()));
  }
}

Scan scan_locks(const Admin& admin, const std::string& prefix, std::size_t limit, const std::stop_token& stop,
                const std::function<void()>& after_page) {
  Scan scan{.limit = limit};
  std::string cursor;
  do {
    auto page = admin.list({.prefix = prefix, .limit = 500, .cursor = cursor}, stop);
    cursor = page.cursor;
    scan.add(std::move(page));
    after_page();
  } while (!cursor.empty());
  return scan;
}

}  // namespace syncguard::command
