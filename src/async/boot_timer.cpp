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
                    "no timer for leases could be created: " + std::generic_category().message(errno));
  }
  return fd;
}

}  // namespace

BootClock::time_point BootClock::now() noexcept {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return time_point(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

BootTimer::BootTimer(const asio::any_io_executor& executor) : descriptor_(executor) {
  const int timer = create_timer();
  asio::error_code error;
  descriptor_.assign(timer, error);  // NOLINT(bugprone-unused-return-value): error says it
  if (!error) return;
  close(timer);
  throw asio::system_error(error, "no timer for leases could be watched");
}

void BootTimer::arm(BootClock::time_point due) noexcept {
  // A zero would disarm the timer.
  const auto since_boot = std::max(due.time_since_epoch(), BootClock::duration(1));
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_boot);
  itimerspec when{};
  when.it_value.tv_sec = static_cast<time_t>(seconds.count());
  when.it_value.tv_nsec = static_cast<long>((since_boot - seconds).count());
  timerfd_settime(descriptor_.native_handle(), TFD_TIMER_ABSTIME, &when, nullptr);
}

asio::awaitable<void> BootTimer::wait() {
  co_await descriptor_.async_wait(asio::posix::stream_descriptor::wait_read, asio::use_awaitable);
  // Read the count of expiries away, or the next wait would end at once. It may be gone again if arm() came between.
  std::uint64_t expiries = 0;
  [[maybe_unused]] const auto size = read(descriptor_.native_handle(), &expiries, sizeof expiries);
}

}  // namespace syncguard::async
