// Turns errors of the server and of libpq into LockError.
#pragma once

#include <syncguard/error.hpp>

#include <string>
#include <string_view>

namespace syncguard::postgres {

// Maps an SQLSTATE. The server's message becomes the error's cause, never part of its message, because it may contain
// anything. where is the text of the failed statement, with the functions around it, if known. It tells which kind of
// lock could not be obtained.
LockError server_error(std::string_view sqlstate, const std::string& server_message, const std::string& where = "");

// The error of a step that was to change a row, and changed none. Nothing of the request has taken effect.
LockError change_discarded();

// Maps the error of a failed connection attempt, for which libpq provides only a message.
LockError connect_error(const std::string& libpq_message);

}  // namespace syncguard::postgres
