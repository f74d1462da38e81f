// What the lanes of a warp access together. A GPU serves the 32 lanes of an access as one request:
// device memory moves the 32-byte sectors that they touch, shared memory takes a wavefront for each
// word of a bank that they want. Threads run one after another here. So the n-th execution of an
// instruction since the block's last barrier belongs to the n-th one of the other lanes.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "emulator/check/places.hpp"
#include "emulator/run/counts.hpp"

namespace flash::simt {

class WarpAccesses {
 public:
  // `from`: where cp.async, which writes `touch`, copies from; else nullptr.
  void add(unsigned thread, const Touch& touch, const void* from);
  // The block's threads have met, or the block has ended; it has `threads`.
  void count_all(unsigned threads);
  // Of one lane: a request of its own, of shared memory a wavefront that conflicts with others.
  static void count_alone(const Touch& touch);

 private:
  struct Request {
    Place place{};
    bool is_read = false;
    std::uint8_t bytes = 0;  // of a lane
    std::uint32_t lanes = 0;
    std::array<std::uint32_t, 32> address{};  // the lower half
    std::array<std::uint32_t, 32> line{};     // of the source of cp.async

    bool has(unsigned lane) const { return (lanes >> lane & 1) != 0; }
  };
  // An instruction of one warp.
  struct Code {
    std::uintptr_t pc;
    unsigned warp;
    bool is_read;  // cp.async reads and writes
    std::array<std::uint32_t, 32> times{};
    std::vector<Request> requests{};
  };

  Code& find(std::uintptr_t pc, unsigned warp, bool is_read);
  static Counted count(const Request& request);
  static Counted count_shared(const Request& request);

  std::vector<Code> codes_;
  std::vector<std::uint32_t> table_;  // hashed: 1 + the index of a code
};

}  // namespace flash::simt
