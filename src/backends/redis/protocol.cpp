#include "backends/redis/protocol.hpp"

#include "backends/redis/scripts.hpp"

#include <hiredis/read.h>

#include <new>
#include <utility>

namespace syncguard::redis {

namespace {

void append_count(std::string& request, std::size_t strings) {
  request += '*';
  request += std::to_string(strings);
  request += "\r\n";
}

void append_string(std::string& request, std::string_view string) {
  request += '$';
  request += std::to_string(string.size());
  request += "\r\n";
  request += string;
  request += "\r\n";
}

}  // namespace

std::string_view Reply::field(std::string_view name) const noexcept {
  for (std::size_t i = 0; i + 1 < elements.size(); i += 2) {
    if (elements[i].text == name) return elements[i + 1].text;
  }
  return {};
}

std::string format_command(Strings command) {
  std::string request;
  append_count(request, command.size());
  for (const auto string : command) append_string(request, string);
  return request;
}

Arguments::Arguments(Strings keys, Strings values) : Arguments(keys.size()) {
  add(keys);
  add(values);
}

Arguments::Arguments(std::size_t keys) {
  constexpr std::size_t usual = 512;
  encoded_.reserve(usual);
  append_string(encoded_, std::to_string(keys));
}

void Arguments::add(Strings arguments) {
  count_ += arguments.size();
  for (const auto argument : arguments) append_string(encoded_, argument);
}

std::string Arguments::by_hash(const Script& script) const { return request("EVALSHA", script.hash); }
std::string Arguments::by_text(const Script& script) const { return request("EVAL", script.text); }

std::string Arguments::request(std::string_view command, std::string_view script) const {
  constexpr std::size_t more = 128;
  std::string request;
  request.reserve(encoded_.size() + script.size() + more);
  // Besides the arguments: the command, the script, and how many of them are keys.
  append_count(request, count_ + 3);
  append_string(request, command);
  append_string(request, script);
  return request += encoded_;
}

namespace {

// A reply that hiredis found, put into the array that it belongs to. Returning null makes hiredis give up.
Reply* place(const redisReadTask* task, Reply&& reply) noexcept {
  int& left = *static_cast<int*>(task->privdata);
  if (left == 0) return nullptr;
  --left;
  if (task->parent == nullptr) return new (std::nothrow) Reply(std::move(reply));
  Reply& slot = static_cast<Reply*>(task->parent->obj)->elements[static_cast<std::size_t>(task->idx)];
  slot = std::move(reply);
  return &slot;
}

void* create_string(const redisReadTask* task, char* text, std::size_t length) noexcept {
  try {
    Reply reply;
    reply.kind = task->type == REDIS_REPLY_ERROR    ? Reply::Kind::error
                 : task->type == REDIS_REPLY_STATUS ? Reply::Kind::status
                                                    : Reply::Kind::text;
    reply.text.assign(text, length);
    return place(task, std::move(reply));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

// Its size is an int in hiredis 0.14, and a size_t later.
template <typename Size>
void* create_array(const redisReadTask* task, Size elements) noexcept {
  // An announced length is not used before it is known to be small.
  if (std::cmp_less(elements, 0) || std::cmp_greater(elements, *static_cast<const int*>(task->privdata)))
    return nullptr;
  try {
    Reply reply;
    reply.kind = Reply::Kind::array;
    reply.elements.resize(static_cast<std::size_t>(elements));
    return place(task, std::move(reply));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void* create_integer(const redisReadTask* task, long long value) noexcept {
  Reply reply;
  reply.kind = Reply::Kind::integer;
  reply.integer = value;
  return place(task, std::move(reply));
}

void* create_nil(const redisReadTask* task) noexcept { return place(task, Reply()); }

void free_root(void* reply) noexcept { delete static_cast<Reply*>(reply); }

template <typename Functions>
constexpr Functions make_functions() {
  Functions functions{};
  functions.createString = create_string;
  functions.createArray = create_array;
  functions.createInteger = create_integer;
  functions.createNil = create_nil;
  functions.freeObject = free_root;
  // hiredis 1.0 and newer also parse types of RESP3, which this client never requests.
  [[maybe_unused]] const auto refuse = [](const redisReadTask*, auto...) -> void* { return nullptr; };
  if constexpr (requires { functions.createDouble; }) functions.createDouble = refuse;
  if constexpr (requires { functions.createBool; }) functions.createBool = refuse;
  return functions;
}

constinit redisReplyObjectFunctions reply_functions = make_functions<redisReplyObjectFunctions>();

}  // namespace

void ReplyReader::Free::operator()(redisReader* reader) const noexcept { redisReaderFree(reader); }

ReplyReader::ReplyReader()
    : reader_(redisReaderCreateWithFunctions(&reply_functions)), elements_left_(std::make_unique<int>(max_elements)) {
  if (!reader_) throw std::bad_alloc();
  reader_->privdata = elements_left_.get();
}

void ReplyReader::feed(std::string_view bytes) {
  // All complete replies have been taken out, so the rest is one incomplete reply.
  if (reader_->len - reader_->pos + bytes.size() > max_bytes) throw ProtocolError("a reply is too long");
  if (redisReaderFeed(reader_.get(), bytes.data(), bytes.size()) != REDIS_OK) throw std::bad_alloc();
}

std::optional<Reply> ReplyReader::next() {
  void* found = nullptr;
  if (redisReaderGetReply(reader_.get(), &found) != REDIS_OK)
    throw ProtocolError("the server does not use the Redis protocol (RESP)");
  if (found == nullptr) return std::nullopt;
  const std::unique_ptr<Reply> reply(static_cast<Reply*>(found));
  *elements_left_ = max_elements;
  return std::move(*reply);
}

}  // namespace syncguard::redis
