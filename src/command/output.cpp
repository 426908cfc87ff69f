#include "command/output.hpp"

#include <iostream>

namespace syncguard::command {

void Output::result(const nlohmann::ordered_json& object, const std::string& text) const {
  if (json_) {
    std::cout << object.dump() << std::endl;
  } else if (!text.empty()) {
    std::cout << text << std::endl;
  }
}

void Output::remark(const std::string& text) const {
  if (!json_ && verbosity_ != Verbosity::quiet) std::cerr << text << std::endl;
}

void Output::error(const LockError& error) const {
  const std::string code(to_string(error.code()));
  // what() begins with the code, which the object has in a field of its own.
  const std::string message = std::string(error.what()).substr(code.size() + 2);
  if (json_) {
    std::cout << nlohmann::ordered_json{{"error", {{"code", code}, {"message", message}}}}.dump() << std::endl;
  } else {
    std::cerr << "syncguard: " << message << " (" << code << ")" << std::endl;
  }
}

}  // namespace syncguard::command
