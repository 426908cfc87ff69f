#include "command/http_reply.hpp"

#include "page_files.hpp"

#include <map>

namespace syncguard::command {
namespace {

// No script, style or request of another origin; no inline script; no frame around the page.
constexpr const char* content_security_policy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

}  // namespace

Reply text_reply(unsigned status, std::string text) { return {.status = status, .body = std::move(text) + "\n"}; }

Reply json_reply(unsigned status, const nlohmann::ordered_json& object) {
  return {.status = status,
          .type = "application/json",
          .body = object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

const PageFile* page_file(std::string_view path) {
  static const std::map<std::string_view, PageFile> files = {
      {"/", {"text/html; charset=utf-8", page::index_html}},
      {"/page.css", {"text/css; charset=utf-8", page::page_css}},
      {"/page.js", {"text/javascript; charset=utf-8", page::page_js}},
      {"/icon.svg", {"image/svg+xml", page::icon_svg}},
  };
  const auto file = files.find(path);
  return file == files.end() ? nullptr : &file->second;
}

std::string_view value_of(MHD_Connection* connection, MHD_ValueKind kind, std::string_view name) {
  const char* value = nullptr;
  std::size_t size = 0;
  if (MHD_lookup_connection_value_n(connection, kind, name.data(), name.size(), &value, &size) == MHD_NO) return {};
  return value == nullptr ? std::string_view() : std::string_view(value, size);
}

std::string_view header_of(MHD_Connection* connection, std::string_view name) {
  return value_of(connection, MHD_HEADER_KIND, name);
}

MHD_Result answer(MHD_Connection* connection, const Reply& reply, MHD_Response* response) {
  const auto add = [&](const char* name, const std::string& value) {
    MHD_add_response_header(response, name, value.c_str());
  };
  add("Content-Type", reply.type);
  add("Cache-Control", "no-store");
  add("Content-Security-Policy", content_security_policy);
  add("X-Content-Type-Options", "nosniff");
  add("X-Frame-Options", "DENY");
  add("Referrer-Policy", "no-referrer");
  add("Cross-Origin-Resource-Policy", "same-origin");
  add("Cross-Origin-Opener-Policy", "same-origin");
  for (const auto& [name, value] : reply.headers) add(name.c_str(), value);
  const auto result = MHD_queue_response(connection, reply.status, response);
  MHD_destroy_response(response);
  return result;
}

MHD_Result answer(MHD_Connection* connection, const Reply& reply) {
  // libmicrohttpd does not change a buffer that it copies, but its parameter is not const.
  auto* body = const_cast<char*>(reply.body.data());
  return answer(connection, reply, MHD_create_response_from_buffer(reply.body.size(), body, MHD_RESPMEM_MUST_COPY));
}

}  // namespace syncguard::command
