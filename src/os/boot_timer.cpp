#include "os/boot_timer.hpp"

#include <syncguard/error.hpp>

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <string>
#include <system_error>
#include <thread>

namespace syncguard::os {
namespace {

int create_timer() {
  const int fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC);
  if (fd < 0) {
    throw LockError(ErrorCode::internal,
                    "cannot create the timer for leases: " + std::generic_category().message(errno));
  }
  return fd;
}

}  // namespace

BootTimer::BootTimer() : timer_(create_timer()) {}

void BootTimer::arm(BootClock::time_point due) noexcept {
  if (origin_.is_ancestor()) return;
  // A zero would disarm the timer.
  const auto since_boot = std::max(due.time_since_epoch(), BootClock::duration(1));
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_boot);
  itimerspec when{};
  when.it_value.tv_sec = static_cast<time_t>(seconds.count());
  when.it_value.tv_nsec = static_cast<long>((since_boot - seconds).count());
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

void BootTimer::wait() noexcept {
  std::uint64_t expiries = 0;
  if (read(timer_.get(), &expiries, sizeof expiries) >= 0 || errno == EINTR) return;
  // The application has closed the descriptor. Losses are then told a little late, but they are told.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

}  // namespace syncguard::os
