// First come, first served among the waiters of one client: only the first in line of a key talks to the backend.
#pragma once

#include "async/wake_up.hpp"

#include <syncguard/key.hpp>

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace syncguard::detail {

// Thread-safe. Must outlive its places.
class WaitingLine {
  struct Waiter {
    std::shared_ptr<async::WakeUp> wake_up;
  };
  using Line = std::list<Waiter>;
  using Lines = std::unordered_map<Key, Line>;

 public:
  // A place in the line of one key, given up when destroyed.
  class Place {
   public:
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place();

    [[nodiscard]] bool is_first() const;

   private:
    friend class WaitingLine;
    Place(WaitingLine& line, const Key& key, const std::function<std::shared_ptr<async::WakeUp>()>& make_wake_up);

    WaitingLine& owner_;
    Lines::value_type* line_;  // a pointer, because growing the map keeps those valid
    Line::iterator waiter_;
  };

  // Joins the end of the line. make_wake_up is called only if somebody is in front; the wake-up that it makes is
  // signalled when this place becomes the first.
  [[nodiscard]] Place enter(const Key& key, const std::function<std::shared_ptr<async::WakeUp>()>& make_wake_up) {
    return {*this, key, make_wake_up};
  }

 private:
  mutable std::mutex mutex_;
  Lines lines_;
};

}  // namespace syncguard::detail
