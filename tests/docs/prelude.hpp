// Declarations that the snippets of the documents use: the reader's program.
#pragma once

#include <syncguard/async.hpp>
#include <syncguard/backend.hpp>
#include <syncguard/memory.hpp>
#include <syncguard/registry.hpp>
#include <syncguard/syncguard.hpp>
#include <syncguard/testing/fault_injection.hpp>

#include <asio/use_awaitable.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
namespace sg = syncguard;

struct Order {};
extern Order order;
extern std::stop_token shutdown_token;
extern sg::Locks locks;
std::string charge(const Order& what, sg::Fence fence, std::stop_token lost);
void build_report();
bool work_is_left();
void work_a_little();
// These run statements and scripts with the client library of the reader's program.
int rows_changed_by(const char* sql, const std::vector<std::string>& values);
int balance_of(const std::string& account);
bool run_script(const std::string& key, const std::vector<std::string>& arguments);
void write_to_journal(std::string_view message);
std::string secret(const std::string& name);
std::unique_ptr<sg::Backend> make_my_backend(const std::string& place, std::chrono::milliseconds timeout,
                                             const sg::Log& log);
