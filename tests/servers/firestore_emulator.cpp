#include "servers/firestore_emulator.hpp"

#include "servers/shared_server.hpp"

#include <asio/buffer.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <asio/read_until.hpp>
#include <asio/write.hpp>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <thread>

namespace syncguard::testing {
namespace {

using nlohmann::json;

struct HttpAnswer {
  int status;
  std::string body;
};

// Sends one request on a new connection. Throws if there is no reply.
HttpAnswer http_post(const std::string& address, const std::string& path, const std::string& body) {
  const auto colon = address.find(':');
  asio::io_context context;
  asio::ip::tcp::socket socket(context);
  socket.connect({asio::ip::make_address(address.substr(0, colon)),
                  static_cast<unsigned short>(std::stoi(address.substr(colon + 1)))});
  asio::write(socket, asio::buffer("POST " + path + " HTTP/1.1\r\nHost: " + address +
                                   "\r\nAuthorization: Bearer owner\r\nContent-Type: application/json\r\n"
                                   "Content-Length: " +
                                   std::to_string(body.size()) + "\r\n\r\n" + body));
  std::string received;
  const auto head = asio::read_until(socket, asio::dynamic_buffer(received), "\r\n\r\n");
  const std::string length_header = "content-length: ";
  const auto length_at = received.find(length_header);
  if (length_at == std::string::npos || length_at > head)
    throw std::runtime_error("an HTTP reply without Content-Length");
  const auto whole = head + std::stoul(received.substr(length_at + length_header.size()));
  if (received.size() < whole) {
    asio::read(socket, asio::dynamic_buffer(received), asio::transfer_exactly(whole - received.size()));
  }
  return {std::stoi(received.substr(received.find(' '))), received.substr(head)};
}

}  // namespace

FirestoreEmulator::FirestoreEmulator() {
  start_on_free_port([this](int port) {
    port_ = port;
    address_ = "127.0.0.1:" + std::to_string(port);
    start();
  });
}

std::string FirestoreEmulator::url(const std::string& project, const std::string& more_options) const {
  return "firestore://" + project + "?emulator=" + address() + more_options;
}

void FirestoreEmulator::start() {
  process_ = std::make_unique<ChildProcess>(
      std::vector<std::string>{"java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.language=en",
                               "-cp", SYNCGUARD_FIRESTORE_EMULATOR,
                               "com.google.cloud.datastore.emulator.firestore.CloudFirestore", "--host=127.0.0.1",
                               "--port=" + std::to_string(port_)},
      folder_.path() / "log");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!is_ready()) {
    if (!process_->is_running() || std::chrono::steady_clock::now() > end) {
      throw std::runtime_error("the Firestore emulator does not start");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// The first Commit also initializes the emulator, so that tests do not wait for that.
bool FirestoreEmulator::is_ready() const {
  try {
    return http_post(address(), "/v1/projects/ready/databases/(default)/documents:commit", "{}").status == 200;
  } catch (const std::exception&) {
    return false;
  }
}

void FirestoreEmulator::kill() {
  process().send(SIGKILL);
  process().wait();
  process_.reset();
}

ChildProcess& FirestoreEmulator::process() {
  if (!process_)
    throw std::logic_error("a test that pauses or kills its emulator must not share it: see CMakeLists.txt");
  return *process_;
}

FirestoreEmulator& shared_emulator() {
  static const auto instance = [] {
    const auto shared = find_shared_server("firestore");
    return shared ? std::make_unique<FirestoreEmulator>(shared->properties.at("address"))
                  : std::make_unique<FirestoreEmulator>();
  }();
  return *instance;
}

std::string next_project() {
  static std::atomic<int> count{0};
  return "test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
}

FirestoreRestClient::FirestoreRestClient(const FirestoreEmulator& emulator, std::string project)
    : address_(emulator.address()), root_("projects/" + std::move(project) + "/databases/(default)/documents") {}

FirestoreRestClient::Answer FirestoreRestClient::post(const std::string& method, const json& body) const {
  const auto [status, text] = http_post(address_, "/v1/" + root_ + ":" + method, body.dump());
  return {status, json::parse(text)};
}

json FirestoreRestClient::expect_ok(const std::string& method, const json& body) const {
  auto [status, answer] = post(method, body);
  if (status != 200) throw std::runtime_error(method + ": " + answer.dump());
  return answer;
}

json FirestoreRestClient::get(const std::string& path) const {
  const auto answers = expect_ok("batchGet", {{"documents", {name_of(path)}}});
  return answers.at(0).value("found", json());
}

json FirestoreRestClient::write_of(const std::string& path, const json& fields) const {
  return {{"update", {{"name", name_of(path)}, {"fields", fields}}}};
}

void FirestoreRestClient::put(const std::string& path, const json& fields) const {
  expect_ok("commit", {{"writes", {write_of(path, fields)}}});
}

void FirestoreRestClient::remove(const std::string& path) const {
  expect_ok("commit", {{"writes", {{{"delete", name_of(path)}}}}});
}

std::vector<std::string> FirestoreRestClient::list(const std::string& collection) const {
  const json from = {{{"collectionId", collection}}};
  const auto answers = expect_ok("runQuery", {{"structuredQuery", {{"from", from}}}});
  std::vector<std::string> ids;
  for (const auto& answer : answers) {
    if (!answer.contains("document")) continue;
    const auto name = answer["document"]["name"].get<std::string>();
    ids.push_back(name.substr(name_of(collection).size() + 1));
  }
  return ids;
}

std::string FirestoreRestClient::begin() const {
  return expect_ok("beginTransaction", {{"options", {{"readWrite", json::object()}}}}).at("transaction");
}

json FirestoreRestClient::get_in(const std::string& transaction, const std::vector<std::string>& paths) const {
  json names = json::array();
  for (const auto& path : paths) names.push_back(name_of(path));
  return expect_ok("batchGet", {{"documents", names}, {"transaction", transaction}});
}

bool FirestoreRestClient::commit_in(const std::string& transaction, const json& writes) const {
  constexpr int conflict = 409;
  const auto [status, answer] = post("commit", {{"writes", writes}, {"transaction", transaction}});
  if (status != 200 && status != conflict) throw std::runtime_error("commit: " + answer.dump());
  return status == 200;
}

}  // namespace syncguard::testing
