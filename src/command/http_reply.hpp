// What the web server of `serve` sends, and how it reads the parts of a request.
#pragma once

#include <microhttpd.h>

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace syncguard::command {

struct Reply {
  unsigned status = MHD_HTTP_OK;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers{};
};

Reply text_reply(unsigned status, std::string text);
Reply json_reply(unsigned status, const nlohmann::ordered_json& object);

// A file of the page.
struct PageFile {
  const char* type;
  std::string_view content;
};
// nullptr if the page has no such file.
const PageFile* page_file(std::string_view path);

// Queues the reply, with headers that protect the page from other sites.
MHD_Result answer(MHD_Connection* connection, const Reply& reply);
// The same with a body that libmicrohttpd reads from this response, which it then owns.
MHD_Result answer(MHD_Connection* connection, const Reply& reply, MHD_Response* response);

// A header or an argument of the request; empty if there is none.
std::string_view value_of(MHD_Connection* connection, MHD_ValueKind kind, std::string_view name);
std::string_view header_of(MHD_Connection* connection, std::string_view name);

}  // namespace syncguard::command
