// Certificates for servers that tests run.
#pragma once

#include <filesystem>

namespace syncguard::testing {

// Creates ca.crt, server.crt, server.key, client.crt and client.key in a folder. The server's certificate is for
// localhost and 127.0.0.1.
void make_certificates(const std::filesystem::path& folder);

}  // namespace syncguard::testing
