#include "report.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <utility>

namespace syncguard::bench {
namespace {

std::string today() {
  const std::chrono::year_month_day date(std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now()));
  char text[16];
  std::snprintf(text, sizeof text, "%04d-%02u-%02u", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                static_cast<unsigned>(date.day()));
  return text;
}

}  // namespace

Report::Report() {
  if (getloadavg(&load_before_, 1) != 1) throw std::runtime_error("cannot read the load of the machine");
}

void Report::add(Row row) {
  if (rows_.empty() || rows_.back().group != row.group) std::printf("\n%s\n", row.group.c_str());
  std::printf("  %-46s %12.2f %-9s", row.name.c_str(), row.value, row.unit.c_str());
  if (row.floor != 0) std::printf(" floor %12.2f  ratio %6.2f", row.floor, row.ratio);
  for (const auto& [name, value] : row.details.items()) std::printf("  %s %s", name.c_str(), value.dump().c_str());
  std::printf("\n");
  std::fflush(stdout);
  rows_.push_back(std::move(row));
}

void Report::write_json(const std::string& path, const std::string& url) const {
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& row : rows_) {
    nlohmann::json entry = {{"group", row.group}, {"name", row.name}, {"value", row.value}, {"unit", row.unit}};
    if (row.floor != 0) {
      entry["floor"] = row.floor;
      entry["ratio"] = row.ratio;
    }
    entry.update(row.details);
    rows.push_back(std::move(entry));
  }
  // Only the scheme, because the rest of a URL may contain a password.
  const nlohmann::json whole = {{"backend", url.substr(0, url.find(':'))},
                                {"date", today()},
                                {"cores", std::thread::hardware_concurrency()},
                                {"load_before", load_before_},
                                {"rows", std::move(rows)}};
  std::ofstream file(path);
  if (!(file << whole.dump(2) << "\n")) throw std::runtime_error("cannot write " + path);
}

}  // namespace syncguard::bench
