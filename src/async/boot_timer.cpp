#include "async/boot_timer.hpp"

#include <syncguard/error.hpp>

#include <asio/use_awaitable.hpp>

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <string>
#include <system_error>

namespace syncguard::async {
namespace {

int create_timer() {
  const int fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
  if (fd < 0) {
    throw LockError(ErrorCode::internal,
                    "cannot create the timer for leases: " + std::generic_category().message(errno));
  }
  return fd;
}

}  // namespace

BootTimer::BootTimer(const asio::any_io_executor& executor) : descriptor_(executor) {
  const int timer = create_timer();
  asio::error_code error;
  descriptor_.assign(timer, error);  // NOLINT(bugprone-unused-return-value): reported in error
  if (!error) return;
  close(timer);
  throw asio::system_error(error, "cannot watch the timer for leases");
}

void BootTimer::arm(BootClock::time_point due) noexcept {
  if (origin_.is_ancestor()) return;
  // A zero would disarm the timer.
  const auto since_boot = std::max(due.time_since_epoch(), BootClock::duration(1));
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_boot);
  itimerspec when{};
  when.it_value.tv_sec = static_cast<time_t>(seconds.count());
  when.it_value.tv_nsec = static_cast<long>((since_boot - seconds).count());
  timerfd_settime(descriptor_.native_handle(), TFD_TIMER_ABSTIME, &when, nullptr);
}

asio::awaitable<bool> BootTimer::wait() {
  co_await descriptor_.async_wait(asio::posix::stream_descriptor::wait_read, asio::use_awaitable);
  // Parent and child share one timer: the parent would never see an expiry that the child reads.
  if (origin_.is_ancestor()) co_return false;
  // Consume the expiry count, or the next wait would end immediately. It may already be gone if arm() ran in between.
  std::uint64_t expiries = 0;
  [[maybe_unused]] const auto size = read(descriptor_.native_handle(), &expiries, sizeof expiries);
  co_return true;
}

}  // namespace syncguard::async
