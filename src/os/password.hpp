// Passwords that expire: requested for each new connection.
#pragma once

#include <functional>
#include <string>

namespace syncguard::os {

using PasswordCallback = std::function<std::string()>;

// Calls the callback on this thread. The callback may block, so never use an I/O thread. Throws
// LockError(service_unavailable) if the callback throws, or if the password is empty, longer than 64 KiB or contains a
// NUL. The message never contains the password or the callback's output.
std::string ask_for_password(const PasswordCallback& callback);

// Returns a callback that runs `/bin/sh -c COMMAND`. Its standard output, without the last line break, is the password.
// Its standard input is empty, and it inherits standard error. The command ends when its shell exits; background
// children continue. A command that takes longer than 30 s or prints too much is killed together with its process
// group. Throws LockError(invalid_argument) if the command is empty.
PasswordCallback password_from_command(const std::string& command);

}  // namespace syncguard::os
