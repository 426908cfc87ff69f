// Combines two stop tokens.
#pragma once

#include <optional>
#include <stop_token>

namespace syncguard::async {

// A token that is stopped as soon as one of two tokens is. Free of cost if only one of them can be stopped.
class EitherStop {
 public:
  EitherStop(const std::stop_token& first, const std::stop_token& second);
  EitherStop(const EitherStop&) = delete;
  EitherStop& operator=(const EitherStop&) = delete;

  [[nodiscard]] const std::stop_token& token() const noexcept { return token_; }

 private:
  struct RequestStop {
    std::stop_source source;
    void operator()() noexcept { source.request_stop(); }
  };

  std::stop_token token_;
  std::optional<std::stop_callback<RequestStop>> first_;
  std::optional<std::stop_callback<RequestStop>> second_;
};

}  // namespace syncguard::async
