// The library's Lua scripts with another clock.
#pragma once

#include "backends/redis/scripts.hpp"

#include <string>

namespace syncguard::testing {

// The text of a script for which TIME returns this time.
inline std::string at_time(const std::string& seconds, const std::string& microseconds, const redis::Script& script) {
  return "local server = redis\n"
         "local redis = {pcall = server.pcall, sha1hex = server.sha1hex, call = function(name, ...)\n"
         "  if name == 'TIME' then return {'" +
         seconds + "', '" + microseconds +
         "'} end\n"
         "  return server.call(name, ...)\n"
         "end}\n" +
         script.text;
}

}  // namespace syncguard::testing
