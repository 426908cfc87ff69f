// Fenced writes to PostgreSQL: a holder was paused until its lock had expired and writes too late. The table rejects
// the write, which no lock can do alone.
//
// usage: fenced_writes URL      a database that may be written to, such as postgres://me@localhost/test

#include <syncguard/syncguard.hpp>

#include <libpq-fe.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace sg = syncguard;
using namespace std::chrono_literals;

namespace {

// The store that the lock protects. Each row contains the newest fence it has seen.
class Accounts {
 public:
  explicit Accounts(const std::string& url) : connection_(PQconnectdb(url.c_str()), PQfinish) {
    execute("CREATE TEMPORARY TABLE account (id text PRIMARY KEY, balance bigint NOT NULL, fence bigint NOT NULL)");
    execute("INSERT INTO account VALUES ('42', 100, 0)");
  }

  // Stores the fence before anything is read: from now on, only this holder and newer ones can write. Returns false if
  // the row has a newer fence. With <=, a holder may claim a row several times.
  bool claim(const std::string& id, sg::Fence fence) {
    return changes_a_row("UPDATE account SET fence = $2 WHERE id = $1 AND fence <= $2",
                         {id, std::to_string(fence.value())});
  }

  // Checks and stores the fence, and writes the balance.
  bool set_balance(const std::string& id, int balance, sg::Fence fence) {
    return changes_a_row("UPDATE account SET balance = $3, fence = $2 WHERE id = $1 AND fence <= $2",
                         {id, std::to_string(fence.value()), std::to_string(balance)});
  }

  int balance(const std::string& id) {
    return std::stoi(PQgetvalue(execute("SELECT balance FROM account WHERE id = $1", {id}).get(), 0, 0));
  }

 private:
  using Result = std::unique_ptr<PGresult, decltype(&PQclear)>;

  bool changes_a_row(const char* sql, const std::vector<std::string>& values) {
    return std::string(PQcmdTuples(execute(sql, values).get())) == "1";
  }

  Result execute(const char* sql, const std::vector<std::string>& values = {}) {
    std::vector<const char*> pointers;
    for (const auto& value : values) pointers.push_back(value.c_str());
    Result result(PQexecParams(connection_.get(), sql, static_cast<int>(values.size()), nullptr, pointers.data(),
                               nullptr, nullptr, 0),
                  PQclear);
    const auto status = PQresultStatus(result.get());
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
      throw std::runtime_error(PQerrorMessage(connection_.get()));
    }
    return result;
  }

  std::unique_ptr<PGconn, decltype(&PQfinish)> connection_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s postgres://...\n", argv[0]);
    return 2;
  }
  try {
    const std::string url = argv[1];
    Accounts accounts(url);
    auto locks = sg::open(url);
    std::puts(locks.admin().setup().c_str());

    // The first holder claims and reads the row, then is paused, for example by garbage collection, swapping or a
    // debugger.
    sg::Lease paused = locks.acquire("account:42", {.ttl = 100ms});
    const bool first_claimed = accounts.claim("42", paused.fence());
    const int old_balance = accounts.balance("42");

    // Its lock expires. The next holder acquires the lock and is about to take 30 from the account.
    sg::Lease next = locks.acquire("account:42");
    const bool next_claimed = accounts.claim("42", next.fence());
    const int balance = accounts.balance("42");

    // The first holder resumes. If the next holder had not claimed the row before it read, this write would succeed,
    // and the next one would overwrite it.
    const bool late = accounts.set_balance("42", old_balance + 1, paused.fence());
    std::printf("fence %s: %s\n", paused.fence().str().c_str(), late ? "written" : "rejected");

    const bool taken = accounts.set_balance("42", balance - 30, next.fence());
    std::printf("fence %s: %s\n", next.fence().str().c_str(), taken ? "written" : "rejected");
    std::printf("balance: %d\n", accounts.balance("42"));
    return first_claimed && next_claimed && !late && taken && accounts.balance("42") == 70 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
