// What a server's refusals mean to a caller.
#pragma once

#include <syncguard/error.hpp>

#include <string>
#include <string_view>

namespace syncguard::postgres {

// By SQLSTATE. The server's own words go into the error's cause, never into its message: they may contain anything.
LockError server_error(std::string_view sqlstate, const std::string& words);

// Of an attempt to connect, for which libpq has words only.
LockError connect_error(const std::string& words);

}  // namespace syncguard::postgres
