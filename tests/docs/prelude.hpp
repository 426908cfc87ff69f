// What the snippets of the documents take for granted: the reader's own program.
#pragma once

#include <syncguard/async.hpp>
#include <syncguard/backend.hpp>
#include <syncguard/memory.hpp>
#include <syncguard/registry.hpp>
#include <syncguard/syncguard.hpp>
#include <syncguard/testing/fault_injection.hpp>

#include <asio/use_awaitable.hpp>

#include <string>

using namespace std::chrono_literals;
namespace sg = syncguard;

struct Order {};
extern Order order;
extern std::stop_token shutdown_token;
extern sg::Locks locks;
std::string charge(const Order& what, sg::Fence fence, std::stop_token lost);
void build_report();
