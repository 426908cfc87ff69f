// The guardian's own side; guardian.hpp says what it is.
#pragma once

#include "command/guardian.hpp"

namespace syncguard::command {

// What the new process does until its end. socket leads to syncguard, whose process group is home_group.
[[noreturn]] void guard(int socket, pid_t home_group, const Charge& charge);

}  // namespace syncguard::command
