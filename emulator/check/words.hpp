// What the checks say about two accesses that nothing orders.
#pragma once

#include <cstdint>
#include <string>

#include "emulator/check/clocks.hpp"
#include "emulator/check/places.hpp"

namespace flash::simt {

class Words {
 public:
  Words(const Worker& worker, const Clocks& clocks, const Places& places)
      : worker_(worker), clocks_(clocks), places_(places) {}

  // The text of a race: an access at `where`, and the one before it, at `before`, in a slot of a
  // cell.
  std::string conflict(const Touch& touch, const std::string& where, int slot, const Access& other,
                       const std::string& before) const;
  // The text of an agent's access to what a thread wrote without a fence_proxy_async().
  std::string no_proxy_fence(const Touch& touch, const std::string& where, const Access& write,
                             const std::string& before) const;
  // " calls tma_store(), which", of an agent's access; "" of a thread's own.
  std::string call(const Touch& touch) const;

 private:
  struct Rounds {  // of a loop, that two accesses are in
    int line_of_sync = 0;
    bool now_is_next = false, then_is_next = false;
  };
  Rounds rounds(const Touch& touch, const Access& other) const;
  std::string actor(unsigned number, std::uint32_t time) const;
  std::string why_unordered(const Touch& touch, const Access& other, int line_of_sync) const;

  const Worker& worker_;
  const Clocks& clocks_;
  const Places& places_;
};

}  // namespace flash::simt
