// The boards of a GPU: what problem.hpp leaves to the device, but for its problems. NVML, the
// library behind nvidia-smi, says how the GPU is; without it nothing is known, and that is fine.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <chrono>
#include <thread>

#include "benchmarking/leaderboard/problem.hpp"
#include "common/cuda/check.hpp"
#include "common/cuda/device.hpp"
#include "common/error.hpp"

namespace flash::leaderboard {
namespace {

// The few functions that are needed, by their names; a toolkit may lack the header.
class Nvml {
 public:
  Nvml() {
    void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    const auto init = get<int()>(library, "nvmlInit_v2");
    const auto by_bus = get<int(const char*, void**)>(library, "nvmlDeviceGetHandleByPciBusId_v2");
    get_clock_ = get<int(void*, int, unsigned*)>(library, "nvmlDeviceGetClockInfo");
    get_temperature_ = get<int(void*, int, unsigned*)>(library, "nvmlDeviceGetTemperature");
    get_processes_ =
        get<int(void*, unsigned*, Process*)>(library, "nvmlDeviceGetComputeRunningProcesses_v3");
    char bus[32] = {};
#ifndef FLASH_SIMT
    if (cudaDeviceGetPCIBusId(bus, sizeof bus, 0) != cudaSuccess) return;
#endif
    if (!init || !by_bus || init() != 0 || by_bus(bus, &device_) != 0) device_ = nullptr;
  }

  // 0 where it is not known.
  double clock_mhz() const {
    constexpr int kOfMultiprocessors = 1;
    return number(get_clock_, kOfMultiprocessors);
  }
  double temperature_c() const { return number(get_temperature_, 0); }
  unsigned processes() const {
    unsigned count = 64;
    Process all[64];
    const bool known = device_ && get_processes_ && get_processes_(device_, &count, all) == 0;
    return known ? count : 0;
  }

 private:
  struct Process {  // nvmlProcessInfo_t
    unsigned pid;
    unsigned long long bytes;
    unsigned instance, compute_instance;
  };

  template <class Function>
  static Function* get(void* library, const char* name) {
    return reinterpret_cast<Function*>(dlsym(library, name));
  }
  double number(int (*function)(void*, int, unsigned*), int which) const {
    unsigned value = 0;
    const bool known = device_ && function && function(device_, which, &value) == 0;
    return known ? value : 0;
  }

  void* device_ = nullptr;
  int (*get_clock_)(void*, int, unsigned*) = nullptr;
  int (*get_temperature_)(void*, int, unsigned*) = nullptr;
  int (*get_processes_)(void*, unsigned*, Process*) = nullptr;
};

const Nvml& nvml() {
  static const Nvml instance;
  return instance;
}

#ifndef FLASH_SIMT
int attribute(cudaDeviceAttr which) {
  int value = 0;
  FLASH_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, 0));
  return value;
}

// Dense products of 16-bit numbers on the tensor cores of one multiprocessor: operations a clock.
// No result that passes the check takes fewer of them.
double operations_a_clock(int capability) {
  if (capability < 80) return 1024;                            // Volta, Turing
  if (capability < 90) return capability == 80 ? 2048 : 1024;  // A100; Ampere, Ada
  return capability < 100 ? 4096 : 8192;                       // Hopper; Blackwell at most
}
#endif

}  // namespace

std::unique_ptr<grading::CallMemory> memory_of_calls() { return grading::memory_of_gpu(); }

// Not measured but by the data sheet's formulas: a floor that no program is under.
Rates rates_now() {
  Rates rates{.peak_gflops = 1e6, .bandwidth_gbs = 1e6};
#ifndef FLASH_SIMT
  rates.peak_gflops = 1e-6 * attribute(cudaDevAttrClockRate) * device::multiprocessors() *
                      operations_a_clock(device::compute_capability());
  rates.bandwidth_gbs =
      2e-6 / 8 * attribute(cudaDevAttrMemoryClockRate) * attribute(cudaDevAttrGlobalMemoryBusWidth);
#endif
  rates.clock_mhz = nvml().clock_mhz();
  rates.temperature_c = nvml().temperature_c();
  return rates;
}

Device device_now() {
  if (device::count() == 0) return {.name = "", .trouble = "there is no GPU here"};
  // Asked before this process, too, is one of them. One that has ended is seen a little longer.
  unsigned others = device::is_emulated() ? 0 : nvml().processes();
  for (int n = 0; n < 30 && others > 0; ++n) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    others = nvml().processes();
  }
  Device device{.name = device::name(), .trouble = ""};
  if (others > 0)
    device.trouble = "the GPU is busy: " + std::to_string(others) +
                     (others == 1 ? " other process computes" : " other processes compute") +
                     " on it; nvidia-smi shows which";
  return device;
}

}  // namespace flash::leaderboard
