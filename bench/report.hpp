// What the benchmark found, as a table for people and as JSON for programs.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace syncguard::bench {

struct Row {
  std::string group;
  std::string name;
  // What was measured, and in which unit.
  double value = 0;
  std::string unit;
  // The floor in the same run, and value relative to it; zero where there is none.
  double floor = 0;
  double ratio = 0;
  // More figures, for the JSON and the end of the line.
  nlohmann::json details = nlohmann::json::object();
};

class Report {
 public:
  // Asks for the machine's load, before the benchmark is what makes it.
  Report();
  // Prints the row at once: a benchmark takes long.
  void add(Row row);
  void write_json(const std::string& path, const std::string& url) const;

 private:
  double load_before_ = 0;
  std::vector<Row> rows_;
};

}  // namespace syncguard::bench
