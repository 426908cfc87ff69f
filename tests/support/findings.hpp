// For tests of diagnose().
#pragma once

#include "support/eventually.hpp"

#include <syncguard/syncguard.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

namespace syncguard::testing {

// The verdict and the finding of one check, such as "failure: no such table"; empty if there was no such check.
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

// Expects these checks to become fine: on a busy machine, a store may be reported as slow for a while.
inline void expect_fine(Locks& locks, std::initializer_list<const char*> checks) {
  std::string others;
  EXPECT_TRUE(eventually([&] {
    const auto findings = locks.admin().diagnose();
    others.clear();
    for (const auto* check : checks) {
      const auto verdict = verdict_on(findings, check);
      if (!verdict.starts_with("fine")) others += std::string(check) + ": " + verdict + "\n";
    }
    return others.empty();
  })) << others;
}

}  // namespace syncguard::testing
