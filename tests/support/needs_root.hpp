// For tests that only root can run, because they create files of other users, mounts or namespaces.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

// Ends the test unless it runs as root. ctest then lists it as skipped instead of passed. In CI it must run.
#define SYNCGUARD_NEEDS_ROOT()                                                                \
  if (geteuid() != 0) {                                                                       \
    if (std::getenv("CI") != nullptr) FAIL() << "CI must run as root";                        \
    GTEST_SKIP() << "NOT TESTED: this test needs root. Run it as root before you rely on it"; \
  }                                                                                           \
  static_assert(true, "so that a semicolon follows")
