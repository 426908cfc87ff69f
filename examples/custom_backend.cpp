// Uses your own backend by its URL, like any other backend.

#include "folder_backend.hpp"

#include <syncguard/registry.hpp>
#include <syncguard/syncguard.hpp>

#include <cstdio>

namespace sg = syncguard;

int main() {
  sg::register_backend("folder", [](sg::BackendUrl& url, const sg::BackendContext&) {
    return std::make_unique<example::FolderBackend>(sg::BackendUrl::decode(url.rest()));
  });

  const auto folder = std::filesystem::temp_directory_path() / ("syncguard-example-" + std::to_string(getpid()));
  {
    auto locks = sg::open("folder:" + folder.string());
    auto other = sg::open("folder:" + folder.string());
    auto lease = locks.acquire("key");
    std::printf("acquired under fence %s\n", lease.fence().str().c_str());
    if (const auto taken = other.try_acquire("key")) return 1;
    std::puts("the other client has to wait");
    lease.release();
    std::printf("then it gets fence %s\n", other.acquire("key").fence().str().c_str());
  }
  std::filesystem::remove_all(folder);
}
