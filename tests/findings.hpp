// For tests of what a store says about itself.
#pragma once

#include <syncguard/syncguard.hpp>

#include <gtest/gtest.h>

#include <algorithm>
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

}  // namespace syncguard::testing
