#include "servers/certificates.hpp"

#include "servers/child_process.hpp"

#include <fstream>
#include <string>

namespace syncguard::testing {

void make_certificates(const std::filesystem::path& folder) {
  const auto path = [&](const std::string& name) { return (folder / name).string(); };
  const auto log = folder / "openssl.log";
  const auto key = [&](const std::string& name) {
    run_program({"openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path(name)}, log);
  };
  key("ca.key");
  run_program({"openssl", "req", "-x509", "-new", "-key", path("ca.key"), "-subj", "/CN=test authority", "-days", "2",
               "-out", path("ca.crt")},
              log);
  std::ofstream(folder / "extensions") << "subjectAltName=DNS:localhost,IP:127.0.0.1\n";
  for (const std::string name : {"server", "client"}) {
    key(name + ".key");
    run_program(
        {"openssl", "req", "-new", "-key", path(name + ".key"), "-subj", "/CN=" + name, "-out", path(name + ".csr")},
        log);
    run_program({"openssl", "x509", "-req", "-in", path(name + ".csr"), "-CA", path("ca.crt"), "-CAkey", path("ca.key"),
                 "-CAcreateserial", "-days", "2", "-extfile", path("extensions"), "-out", path(name + ".crt")},
                log);
  }
}

}  // namespace syncguard::testing
