#include "emulator/hopper/wgmma.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "common/half.hpp"
#include "emulator/check/checker.hpp"
#include "emulator/headers/device/tensor_sum.hpp"
#include "emulator/hopper/hopper.hpp"
#include "emulator/run/worker.hpp"

namespace flash::simt {

using enum FindingKind;
namespace {

struct Descriptor {
  std::uint32_t start, leading, stride, base_offset, swizzle;

  explicit Descriptor(std::uint64_t bits)
      : start(field(bits, 0)),
        leading(field(bits, 16)),
        stride(field(bits, 32)),
        base_offset(static_cast<std::uint32_t>(bits >> 49 & 7)),
        swizzle(static_cast<std::uint32_t>(bits >> 62)) {}

 private:
  static std::uint32_t field(std::uint64_t bits, int first) {
    return static_cast<std::uint32_t>(bits >> first & 0x3fff) << 4;
  }
};

// Calls use(window address of 16 bytes, row, first k) for a K-major operand of so many rows.
template <class Use>
void for_each_chunk_by_rows(const Descriptor& tile, int rows, Use use) {
  for (std::uint32_t row = 0; row < static_cast<std::uint32_t>(rows); ++row)
    for (std::uint32_t k = 0; k < 16; k += 8)
      use(swizzled(tile.start + row / 8 * tile.stride + row % 8 * 128 + 2 * k), row, k);
}

// Calls use(window address of 16 bytes, k, first column) for an MN-major B of so many columns.
template <class Use>
void for_each_chunk_by_columns(const Descriptor& tile, int columns, Use use) {
  for (std::uint32_t k = 0; k < 16; ++k)
    for (std::uint32_t n = 0; n < static_cast<std::uint32_t>(columns); n += 8)
      use(swizzled(tile.start + n / 64 * tile.leading + k / 8 * tile.stride + k % 8 * 128 +
                   2 * (n % 64)),
          k, n);
}

// Calls use(window address of 16 bytes, place of their first number in B (16, n), distance of the
// others).
template <class Use>
void for_each_chunk_of_b(const WgmmaCall& call, Use use) {
  const Descriptor tile(call.b);
  const auto columns = static_cast<std::size_t>(call.n);
  if (call.transpose_b)
    for_each_chunk_by_columns(
        tile, call.n, [&](auto address, auto k, auto n) { use(address, k * columns + n, 1); });
  else
    for_each_chunk_by_rows(tile, call.n, [&](auto address, auto n, auto k) {
      use(address, k * columns + n, columns);
    });
}

float value(std::uint16_t bits, bool is_half) {
  return is_half ? static_cast<float>(Half::from_bits(bits))
                 : static_cast<float>(BFloat16::from_bits(bits));
}

// Element `i` of what thread `thread` of a warpgroup holds of D: its place in the matrix.
std::size_t place_in_d(unsigned thread, unsigned i, unsigned columns) {
  const unsigned warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
  const unsigned row = 16 * warp + g + 8 * (i / 2 % 2), column = 8 * (i / 4) + 2 * t + i % 2;
  return row * columns + column;
}

}  // namespace

Wgmma::Warpgroup& Wgmma::mine() { return warpgroups_[meetings_.first() / kWarpgroupSize]; }
unsigned Wgmma::lane_of_warpgroup() const { return worker_.thread_number() - meetings_.first(); }

void Wgmma::issue(const WgmmaCall& call, std::uintptr_t pc) {
  Warpgroup& warpgroup = mine();
  warpgroup.calls[lane_of_warpgroup()] = &call;
  ++warpgroup.threads[lane_of_warpgroup()].issued;
  if (!meetings_.come("wgmma()", call.site)) return;

  for (unsigned i = 0; i < kWarpgroupSize; ++i) {
    const WgmmaCall& other = *warpgroup.calls[i];
    if (other.a != call.a || other.b != call.b || other.n != call.n ||
        other.accumulate != call.accumulate)
      worker_.fail(kWarpgroupMismatch, location_of(call.site),
                   text_of("All threads of a warpgroup give wgmma() the same descriptors and the "
                           "same `accumulate`. These two do not:\n",
                           worker_.describe(), "\n", worker_.describe(meetings_.first() + i)));
  }
  const auto check_descriptor = [&](const char* operand, std::uint64_t bits) {
    const Descriptor tile(bits);
    if (tile.swizzle != 1 || tile.base_offset != 0)
      worker_.fail_at(kWrongArgument, call.site, operand,
                      "'s descriptor does not come from matrix_descriptor(): the "
                      "emulator knows the swizzle of 128 bytes only.");
  };
  if (call.a_registers == nullptr) check_descriptor("A", call.a);
  check_descriptor("B", call.b);
  if (worker_.checks() != nullptr) {
    check(warpgroup, call, pc);
    if (Counts* const counts = Counts::wanted())
      counts->add(call.site, text_of("wgmma m64n", call.n, "k16").c_str(),
                  {.requests = 1, .lanes = kWarpgroupSize});
    Checker::of(worker_)->happens(pc, "wgmma", tile_memory(call, "B", Descriptor(call.b).start),
                                  warpgroup.threads[0].issued);
  }

  Product product{call, &accumulator_of(warpgroup, call), {}, pc};
  Accumulator& d = *product.d;
  const auto per_thread = static_cast<unsigned>(call.n) / 2;
  for (unsigned thread = 0; thread < kWarpgroupSize; ++thread) {
    const WgmmaCall& its = *warpgroup.calls[thread];
    if (call.a_registers != nullptr)
      std::copy(its.a_registers, its.a_registers + 4, product.a_registers[thread].begin());
    if (d.in_flight[thread]) continue;
    d.in_flight[thread] = true;
    for (unsigned i = 0; i < per_thread; ++i)
      d.values[place_in_d(thread, i, static_cast<unsigned>(d.n))] = its.d[i];
    std::memset(its.d, 0xff, per_thread * sizeof(float));
  }
  d.last = warpgroup.threads[0].issued;
  d.pc = pc;
  warpgroup.products.push_back(product);
  meetings_.release();
}

Wgmma::Accumulator& Wgmma::accumulator_of(Warpgroup& warpgroup, const WgmmaCall& call) {
  for (Accumulator& d : warpgroup.accumulators) {
    bool same = d.n == call.n;
    for (unsigned i = 0; i < kWarpgroupSize; ++i)
      same = same && d.registers[i] == warpgroup.calls[i]->d;
    if (same) return d;
  }
  Accumulator& d = warpgroup.accumulators.emplace_back();
  d.n = call.n;
  d.values.resize(64 * static_cast<std::size_t>(call.n));
  for (unsigned i = 0; i < kWarpgroupSize; ++i) d.registers[i] = warpgroup.calls[i]->d;
  return d;
}

// What the product reads, and the registers that it uses.
void Wgmma::check(Warpgroup& warpgroup, const WgmmaCall& call, std::uintptr_t pc) {
  Checker& checker = *Checker::of(worker_);
  const unsigned first = meetings_.first();
  const std::uint64_t number = warpgroup.threads[0].issued;
  for (unsigned i = 0; i < kWarpgroupSize; ++i) {
    const WgmmaCall& its = *warpgroup.calls[i];
    checker.use_registers(first + i, its.d, static_cast<std::size_t>(call.n) / 2 * sizeof(float),
                          true, number, pc);
    if (its.a_registers != nullptr)
      checker.use_registers(first + i, its.a_registers, 4 * sizeof(std::uint32_t), false, number,
                            pc);
  }
  if (warpgroup.agent == 0) warpgroup.agent = checker.clocks().new_agent("wgmma()");
  const AsyncStep step = checker.clocks().async_step(warpgroup.agent, true, pc);
  const auto read = [&](const char* operand, std::uint32_t address) {
    checker.async_access(step, tile_memory(call, operand, address), 16, AccessKind::kRead);
  };
  if (call.a_registers == nullptr)
    for_each_chunk_by_rows(Descriptor(call.a), 64,
                           [&](auto address, auto, auto) { read("A", address); });
  for_each_chunk_of_b(call, [&](auto address, auto, auto) { read("B", address); });
  warpgroup.times.push_back(step.time);
}

void Wgmma::fence() {
  if (Checker* const checker = Checker::of(worker_))
    checker->registers_of(worker_.thread_number()).fence();
}

void Wgmma::commit() {
  Thread& thread = mine().threads[lane_of_warpgroup()];
  thread.groups.push_back(thread.issued);
}

void Wgmma::wait(int groups, std::uintptr_t pc) {
  Warpgroup& warpgroup = mine();
  Thread& thread = warpgroup.threads[lane_of_warpgroup()];
  std::uint64_t upto = 0;
  for (; thread.groups.size() > static_cast<std::size_t>(groups);
       thread.groups.erase(thread.groups.begin()))
    upto = thread.groups.front();
  for (; warpgroup.made < upto; ++warpgroup.made) {
    make(warpgroup.products.front());
    warpgroup.products.pop_front();
  }
  if (Checker* const checker = Checker::of(worker_); checker != nullptr && upto > 0) {
    checker->clocks().learn(worker_.thread_number(), warpgroup.agent, warpgroup.times[upto - 1]);
    checker->happens(pc, "wgmma done", nullptr, upto);
    checker->registers_of(worker_.thread_number()).end_products(upto);
  }
  const unsigned lane = lane_of_warpgroup();
  for (auto d = warpgroup.accumulators.begin(); d != warpgroup.accumulators.end();) {
    if (d->in_flight[lane] && d->last <= upto) {
      d->in_flight[lane] = false;
      for (unsigned i = 0; i < static_cast<unsigned>(d->n) / 2; ++i)
        d->registers[lane][i] = d->values[place_in_d(lane, i, static_cast<unsigned>(d->n))];
    }
    const bool any =
        std::find(d->in_flight.begin(), d->in_flight.end(), true) != d->in_flight.end();
    d = any ? std::next(d) : warpgroup.accumulators.erase(d);
  }
}

void Wgmma::thread_returns() {
  for (const Accumulator& d : mine().accumulators)
    if (d.in_flight[lane_of_warpgroup()])
      worker_.fail(kAsyncCopy, locate(worker_.launch().module, d.pc),
                   text_of(worker_.describe(),
                           " returns, and has not waited for the product: "
                           "wgmma_commit() and a wgmma_wait() that covers it come first."));
}

// ---- a product ----------------------------------------------------------------------------------

void Wgmma::make(const Product& product) {
  const WgmmaCall& call = product.call;
  float A[64][16];
  std::vector<float> B(16 * static_cast<std::size_t>(call.n));  // (16, n)
  decode_a(product, A);
  for_each_chunk_of_b(call, [&](auto address, std::size_t first, std::size_t step) {
    std::uint16_t bits[8];
    std::memcpy(bits, tile_memory(call, "B", address), sizeof bits);
    for (std::size_t i = 0; i < 8; ++i) B[first + i * step] = value(bits[i], call.is_half);
  });
  std::vector<float>& d = product.d->values;
  if (!call.accumulate) std::fill(d.begin(), d.end(), 0.0f);
  add_products(d.data(), A[0], B.data(), 64, call.n, 16);
}

void Wgmma::decode_a(const Product& product, float (&A)[64][16]) {
  const WgmmaCall& call = product.call;
  if (call.a_registers == nullptr) {
    for_each_chunk_by_rows(Descriptor(call.a), 64, [&](auto address, auto row, auto k) {
      std::uint16_t bits[8];
      std::memcpy(bits, tile_memory(call, "A", address), sizeof bits);
      for (int i = 0; i < 8; ++i) A[row][k + i] = value(bits[i], call.is_half);
    });
    return;
  }
  for (unsigned thread = 0; thread < kWarpgroupSize; ++thread) {
    const unsigned row = 16 * (thread / 32) + thread % 32 / 4, t = thread % 4;
    for (unsigned n = 0; n < 4; ++n)
      for (unsigned i = 0; i < 2; ++i)
        A[row + 8 * (n % 2)][2 * t + i + 8 * (n / 2)] = value(
            static_cast<std::uint16_t>(product.a_registers[thread][n] >> 16 * i), call.is_half);
  }
}

const char* Wgmma::tile_memory(const WgmmaCall& call, const char* operand, std::uint32_t address) {
  if (const char* const memory = worker_.shared_memory().at(address, 16)) return memory;
  worker_.fail_at(kOutOfBounds, call.site, "wgmma() reads ", operand, " at shared address ",
                  address,
                  ", which is not shared memory of this block: check the descriptor's tile, "
                  "`leading` and `stride`.");
}

}  // namespace flash::simt
