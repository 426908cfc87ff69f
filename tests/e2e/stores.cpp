#include "e2e/stores.hpp"

#include "servers/loopback.hpp"
#include "support/sqlite_client.hpp"
#include "support/temporary_folder.hpp"

#include <syncguard/sqlite.hpp>
#include <syncguard/syncguard.hpp>

#if SYNCGUARD_HAS_FIRESTORE_EMULATOR
#include "servers/firestore_emulator.hpp"
#include "servers/firestore_proxy.hpp"
#endif
#if SYNCGUARD_HAS_REDIS
#include "servers/redis_server.hpp"
#endif
#if SYNCGUARD_HAS_POSTGRES
#include "servers/postgres_server.hpp"

#include <syncguard/postgres.hpp>
#endif

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>

namespace syncguard::testing {
namespace {

// A long timeout, because the machine also runs other tests.
const std::string long_timeout = "operation_timeout=20s";

class SqliteStore : public StoreForCommands {
 public:
  SqliteStore() { open(url()).admin().setup(); }

  [[nodiscard]] std::string url() const override { return "sqlite:" + path().string() + "?" + long_timeout; }
  [[nodiscard]] std::string unreachable_url() const override { return "sqlite:" + path().string() + "/in-a-file"; }
  // Root rejects the folder of another user. Other users cannot enter a folder without permissions.
  [[nodiscard]] std::string forbidden_url() const override {
    const auto forbidden = folder_.path() / "forbidden";
    std::filesystem::create_directories(forbidden);
    if (geteuid() != 0) {
      std::filesystem::permissions(forbidden, std::filesystem::perms::none);
    } else if (constexpr uid_t another_user = 65534; chown(forbidden.c_str(), another_user, another_user) != 0) {
      throw std::system_error(errno, std::generic_category(), "chown");
    }
    return "sqlite:" + (forbidden / "locks.db").string();
  }
  [[nodiscard]] std::string silent_url(const std::string& operation_timeout) override {
    const auto busy = folder_.path() / "busy.db";
    if (!blocker_) {
      open("sqlite:" + busy.string()).admin().setup();
      blocker_.emplace(busy)("BEGIN IMMEDIATE");
    }
    return "sqlite:" + busy.string() + "?operation_timeout=" + operation_timeout;
  }
  void exhaust_fences(const std::string& key) override {
    SqliteClient{path()}("INSERT INTO syncguard_fence_counters VALUES (?1, 900000000000000, '')", {"fence:" + key});
  }

 private:
  [[nodiscard]] std::filesystem::path path() const { return folder_.path() / "locks.db"; }

  const TemporaryFolder folder_;
  std::optional<SqliteClient> blocker_;
};

// Accepts connections and never replies.
class SilentServer {
 public:
  SilentServer() { socket_.listen(); }
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(socket_.port()); }

 private:
  const LoopbackSocket socket_;
};

#if SYNCGUARD_HAS_REDIS
class RedisStore : public StoreForCommands {
 public:
  [[nodiscard]] std::string url() const override { return server_.url("&" + long_timeout); }
  [[nodiscard]] std::string unreachable_url() const override {
    return "redis://127.0.0.1:" + std::to_string(unreachable_.port());
  }
  [[nodiscard]] std::string forbidden_url() const override {
    return "redis://unknown:wrong@127.0.0.1:" + std::to_string(server_.port());
  }
  [[nodiscard]] std::string silent_url(const std::string& operation_timeout) override {
    return "redis://" + silent_.address() + "?connect_timeout=1m&operation_timeout=" + operation_timeout;
  }
  void exhaust_fences(const std::string& key) override {
    server_.command({"SET", "syncguard:fence:syncguard:" + key, "900000000000000"});
  }

 private:
  const LoopbackSocket unreachable_;
  const SilentServer silent_;
  RedisServer server_;
};
#endif

#if SYNCGUARD_HAS_POSTGRES
class PostgresStore : public StoreForCommands {
 public:
  PostgresStore() {
    setup_postgres_schema({.connection = server_.url()});
    server_.execute("CREATE ROLE stranger LOGIN");
  }

  [[nodiscard]] std::string url() const override { return server_.url("?" + long_timeout); }
  [[nodiscard]] std::string unreachable_url() const override {
    return "postgres://127.0.0.1:" + std::to_string(unreachable_.port()) + "/postgres";
  }
  [[nodiscard]] std::string forbidden_url() const override { return server_.url_of("stranger"); }
  [[nodiscard]] std::string silent_url(const std::string& operation_timeout) override {
    return "postgres://" + silent_.address() + "/postgres?connect_timeout=1m&operation_timeout=" + operation_timeout;
  }
  void exhaust_fences(const std::string& key) override {
    server_.execute("INSERT INTO syncguard_fence_counters VALUES ($1, 900000000000000)", {"fence:" + key});
  }

 private:
  const LoopbackSocket unreachable_;
  const SilentServer silent_;
  PostgresServer server_;
};
#endif

#if SYNCGUARD_HAS_FIRESTORE_EMULATOR
class FirestoreStore : public StoreForCommands {
 public:
  FirestoreStore() {
    proxy_.set_script([](const std::string&) { return FirestoreProxy::refuse(grpc::StatusCode::PERMISSION_DENIED); });
  }

  [[nodiscard]] std::string url() const override { return emulator_.url(project_, "&" + long_timeout); }
  [[nodiscard]] std::string unreachable_url() const override {
    return "firestore://project?emulator=127.0.0.1:" + std::to_string(unreachable_.port());
  }
  // The emulator does not check permissions.
  [[nodiscard]] std::string forbidden_url() const override { return proxy_.url(project_); }
  [[nodiscard]] std::string silent_url(const std::string& operation_timeout) override {
    return "firestore://project?emulator=" + silent_.address() + "&operation_timeout=" + operation_timeout;
  }
  void exhaust_fences(const std::string& key) override {
    FirestoreRestClient(emulator_, project_)
        .put("fence_counters/fence:" + key, {{"fence", {{"stringValue", "900000000000000"}}}});
  }

 private:
  const LoopbackSocket unreachable_;
  const SilentServer silent_;
  FirestoreEmulator& emulator_ = shared_emulator();
  const std::string project_ = next_project();
  FirestoreProxy proxy_{emulator_.address()};
};
#endif

template <typename Store>
StoreKind kind(const char* name) {
  return {name, [] { return std::make_unique<Store>(); }};
}

}  // namespace

const std::vector<StoreKind>& store_kinds() {
  static const std::vector<StoreKind> kinds = {
    kind<SqliteStore>("Sqlite"),
#if SYNCGUARD_HAS_REDIS
    kind<RedisStore>("Redis"),
#endif
#if SYNCGUARD_HAS_POSTGRES
    kind<PostgresStore>("Postgres"),
#endif
#if SYNCGUARD_HAS_FIRESTORE_EMULATOR
    kind<FirestoreStore>("Firestore"),
#endif
  };
  return kinds;
}

}  // namespace syncguard::testing
