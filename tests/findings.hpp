// For tests of what a store says about itself.
#pragma once

#include "eventually.hpp"

#include <syncguard/syncguard.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

namespace syncguard::testing {

// What came of one check, as in "failure: what was found"; empty if there was no such check.
inline std::string verdict_on(const std::vector<Finding>& findings, const std::string& check) {
  const auto found = std::ranges::find(findings, check, &Finding::check);
  if (found == findings.end()) return "";
  switch (found->verdict) {
    case Finding::Verdict::fine:
      return "fine: " + found->found;
    case Finding::Verdict::warning:
      return "warning: " + found->found;
    case Finding::Verdict::failure:
      break;
  }
  return "failure: " + found->found;
}

// Expects these checks to be fine. On a busy machine a store may be found slow, but not for ever.
inline void expect_fine(Locks& locks, std::initializer_list<const char*> checks) {
  std::string others;
  EXPECT_TRUE(eventually([&] {
    const auto findings = locks.diagnose();
    others.clear();
    for (const auto* check : checks) {
      const auto verdict = verdict_on(findings, check);
      if (!verdict.starts_with("fine")) others += std::string(check) + ": " + verdict + "\n";
    }
    return others.empty();
  })) << others;
}

}  // namespace syncguard::testing
