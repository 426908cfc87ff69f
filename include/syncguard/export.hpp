/// \file
/// Marks what a shared library exports. Everything else is hidden.
#pragma once

// Every public header includes this one, so that an older standard ends with one sentence.
#if __cplusplus < 202002L
#error "SyncGuard needs C++20: compile with -std=c++20, or in CMake target_compile_features(TARGET PRIVATE cxx_std_20)"
#endif

#define SYNCGUARD_EXPORT __attribute__((visibility("default")))
