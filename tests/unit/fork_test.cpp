#include "os/fork.hpp"
#include "support/fork_when_idle.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <memory>
#include <stdexcept>

namespace syncguard::os {
namespace {

class Pair {
 public:
  Pair() {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_.data()) != 0) throw std::runtime_error("no sockets");
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() {
    for (const int end : ends_) close(end);
  }
  [[nodiscard]] int here() const { return ends_[0]; }
  // Whether a byte that is written at one end arrives at the other.
  [[nodiscard]] bool works() const {
    char byte = 0;
    return send(ends_[0], "x", 1, MSG_NOSIGNAL) == 1 && recv(ends_[1], &byte, 1, MSG_DONTWAIT) == 1;
  }

 private:
  std::array<int, 2> ends_{};
};

// Returns what function() returns in a forked child. The function must not use test macros.
int in_child(const std::function<int()>& function) {
  const pid_t child = testing::fork_when_idle();
  if (child == 0) _exit(function());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ForkGuard, DescriptorIsDisconnectedInChild) {
  const Pair pair;
  const ForkGuard guard(pair.here());
  EXPECT_EQ(in_child([&] { return pair.works() ? 1 : 0; }), 0);
  EXPECT_TRUE(pair.works()) << "the parent's socket must stay connected";
}

// A daemon closes all descriptors, opens files that get the same numbers, and forks again.
TEST(ForkGuard, GrandchildKeepsFilesThatReusedDescriptor) {
  const Pair pair;
  const ForkGuard guard(pair.here());
  const auto child = [&] {
    std::array<int, 2> own{};
    if (pipe(own.data()) != 0 || dup2(own[1], pair.here()) != pair.here()) return 1;
    return in_child([&] { return write(pair.here(), "x", 1) == 1 ? 0 : 2; });
  };
  EXPECT_EQ(in_child(child), 0);
}

TEST(ForkGuard, GuardMadeInChildAppliesToGrandchild) {
  const Pair of_parent;
  const ForkGuard guard(of_parent.here());
  const auto child = [&] {
    const Pair own;
    const ForkGuard own_guard(own.here());
    const int in_grandchild = in_child([&] { return own.works() || of_parent.works() ? 1 : 0; });
    return in_grandchild != 0 ? in_grandchild : own.works() ? 0 : 2;
  };
  EXPECT_EQ(in_child(child), 0);
}

TEST(ForkGuard, DestroyingCopyInChildKeepsChildsOwnGuard) {
  const Pair pair;
  auto guard = std::make_unique<ForkGuard>(pair.here());
  const auto child = [&] {
    // The child's own socket gets the same descriptor number and its own guard.
    const Pair own;
    if (dup2(own.here(), pair.here()) != pair.here()) return 1;
    const ForkGuard own_guard(pair.here());
    guard.reset();
    return in_child([&] { return send(pair.here(), "x", 1, MSG_NOSIGNAL) == 1 ? 2 : 0; });
  };
  EXPECT_EQ(in_child(child), 0);
}

}  // namespace
}  // namespace syncguard::os
