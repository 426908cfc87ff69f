// The results of the benchmark, as a table and as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace syncguard::bench {

struct Row {
  std::string group;
  std::string name;
  double value = 0;
  std::string unit;
  // The result of the floor in the same run, and the ratio of the library's to it; zero if there is no floor.
  double floor = 0;
  double ratio = 0;
  // More results, for the JSON and the end of the line.
  nlohmann::json details = nlohmann::json::object();
};

class Report {
 public:
  // Reads the machine's load before the benchmark adds to it.
  Report();
  // Prints the row immediately, because a benchmark takes long.
  void add(Row row);
  void write_json(const std::string& path, const std::string& url) const;

 private:
  double load_before_ = 0;
  std::vector<Row> rows_;
};

}  // namespace syncguard::bench
