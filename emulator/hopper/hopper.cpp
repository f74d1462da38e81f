// Implements hopper.hpp and device/hopper.hpp.
#include "emulator/hopper/hopper.hpp"

#include "emulator/check/checker.hpp"
#include "emulator/headers/device/hopper.hpp"
#include "emulator/run/worker.hpp"

namespace flash::simt {

using enum FindingKind;

void Hopper::thread_returns() {
  wgmma.thread_returns();
  tma.thread_returns();
}

void Hopper::explain_deadlock() {
  Site site{};
  if (meetings.is_stuck(site))
    worker_.fail(kWarpgroupMismatch, location_of(site),
                 "wgmma and setmaxnreg wait for all 128 threads of a warpgroup; not all of them "
                 "have come.\n" +
                     worker_.waiting_threads());
  const std::string missing = mbarriers.what_is_missing() + named_barriers.what_is_missing();
  if (missing.empty()) return;
  worker_.fail(kDeadlock, worker_.first_sleeper(),
               "No thread can go on.\n" + missing + worker_.waiting_threads());
}

std::uint32_t shared_address_of(Worker& worker, const void* memory, const char* what,
                                std::uintptr_t pc) {
  if (const auto address = worker.shared_memory().window_address(memory)) return *address;
  worker.fail_at(kOutOfBounds, pc, what, " is given an address that is not in shared memory.");
}

// ---- device/hopper.hpp --------------------------------------------------------------------------

namespace {
// The units of the running block; made when it first asks for them.
Hopper& hopper(const char* what = __builtin_FUNCTION()) {
  Worker& worker = running_worker(what);
  if (worker.units() == nullptr) worker.set_units(std::make_unique<Hopper>(worker));
  return static_cast<Hopper&>(*worker.units());
}
}  // namespace

void tma_wait(int groups, bool complete) { hopper().tma.wait(groups, complete); }
void wgmma(const WgmmaCall& call) { hopper().wgmma.issue(call, FLASH_HERE); }
void wgmma_wait(int groups) { hopper().wgmma.wait(groups, FLASH_HERE); }
void set_registers(int count, bool takes, Site site) {
  hopper("setmaxnreg").registers.set(count, takes, site);
}

namespace ptx {

std::uint32_t shared_address(const void* memory) {
  return shared_address_of(running_worker("shared_address()"), memory, "shared_address()",
                           FLASH_HERE);
}

void init(Barrier& barrier, int arrivals) {
  hopper().mbarriers.init(&barrier, arrivals, FLASH_HERE);
}
void fence_barrier_init() { hopper().mbarriers.fence_init(); }
void arrive(Barrier& barrier) { hopper().mbarriers.arrive(&barrier, 0, FLASH_HERE); }
void arrive_expecting(Barrier& barrier, int bytes) {
  hopper().mbarriers.arrive(&barrier, bytes, FLASH_HERE);
}
void wait(Barrier& barrier, int parity, Site site) {
  hopper().mbarriers.wait(&barrier, parity, site, FLASH_HERE);
}

void tma_load(void* to, const TensorMap& map, Barrier& barrier, int column, int row, int head,
              int batch) {
  hopper().tma.load(to, &map, &barrier, {column, row, head, batch}, FLASH_HERE);
}
void tma_store(const TensorMap& map, const void* from, int column, int row, int head, int batch) {
  hopper().tma.store(&map, from, {column, row, head, batch}, FLASH_HERE);
}
void tma_commit() { hopper().tma.commit(); }

MatrixDescriptor matrix_descriptor(const void* tile, int leading, int stride) {
  const auto encode = [](int bytes) { return static_cast<std::uint64_t>((bytes & 0x3ffff) >> 4); };
  const std::uint32_t address = shared_address_of(running_worker("matrix_descriptor()"), tile,
                                                  "matrix_descriptor()", FLASH_HERE);
  return {encode(static_cast<int>(address)) | encode(leading) << 16 | encode(stride) << 32 |
          std::uint64_t{1} << 62};
}
void wgmma_fence() { hopper().wgmma.fence(); }
void wgmma_commit() { hopper().wgmma.commit(); }

void sync_named(int id, int threads, Site site) {
  hopper().named_barriers.come("sync_named", id, threads, true, site);
}
void arrive_named(int id, int threads, Site site) {
  hopper().named_barriers.come("arrive_named", id, threads, false, site);
}
void fence_proxy_async() {
  if (Checker* const checker = Checker::of(running_worker("fence_proxy_async()")))
    checker->clocks().proxy_fence();
}

}  // namespace ptx
}  // namespace flash::simt
