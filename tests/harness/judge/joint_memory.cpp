// Implements joint_memory.hpp by the driver's functions for virtual memory; the emulator's devices
// have the host's memory.
#include "harness/judge/joint_memory.hpp"

#include <cstdint>
#include <string>

#include "common/cuda/check.hpp"
#include "common/error.hpp"
#ifdef FLASH_SIMT
#include <sys/mman.h>
#include <unistd.h>
#else
#include <cuda.h>
#endif

namespace flash::grading {

#ifdef FLASH_SIMT

JointMemory::JointMemory(std::size_t bytes) : bytes_((bytes + 4095) / 4096 * 4096) {
  const int fd = memfd_create("device", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes_)) != 0) throw CudaError("no memory file");
  handle_ = static_cast<unsigned long long>(fd);
  map();
}

JointMemory::JointMemory(int descriptor, std::size_t bytes)
    : bytes_(bytes), handle_(static_cast<unsigned long long>(descriptor)) {
  map();
  handle_ = ~0ull;  // the descriptor is the caller's
}

JointMemory::~JointMemory() {
  munmap(data_, bytes_);
  close(static_cast<int>(handle_));
}

int JointMemory::descriptor() const { return dup(static_cast<int>(handle_)); }

void JointMemory::map() {
  void* const mapped =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, static_cast<int>(handle_), 0);
  if (mapped == MAP_FAILED) throw CudaError("memory cannot be mapped");
  data_ = static_cast<char*>(mapped);
}

#else

namespace {

// A function of the driver, asked for by name, so that nothing has to link libcuda.
template <class Function>
Function* driver(const char* name) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  FLASH_CUDA_CHECK(
      cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess)
    throw Unsupported(std::string("the driver has no ") + name +
                      "; it must be for CUDA 12 or later");
  return reinterpret_cast<Function*>(entry);
}

void check(CUresult result, const char* name) {
  if (result == CUDA_ERROR_OUT_OF_MEMORY) throw OutOfMemory(std::string(name) + ": out of memory");
  if (result != CUDA_SUCCESS)
    throw CudaError(std::string(name) + " failed with error " + std::to_string(result));
}

CUmemLocation here() {
  int device = 0;
  FLASH_CUDA_CHECK(cudaGetDevice(&device));
  return {CU_MEM_LOCATION_TYPE_DEVICE, device};
}

}  // namespace

#define FLASH_DRIVER(function, ...) \
  check(driver<decltype(function)>(#function)(__VA_ARGS__), #function)

JointMemory::JointMemory(std::size_t bytes) : bytes_(bytes) {
  FLASH_CUDA_CHECK(cudaFree(nullptr));  // makes the context, where there is none yet
  CUmemAllocationProp how{};
  how.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  how.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  how.location = here();
  std::size_t unit = 0;
  FLASH_DRIVER(cuMemGetAllocationGranularity, &unit, &how, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  bytes_ = (bytes + unit - 1) / unit * unit;
  FLASH_DRIVER(cuMemCreate, &handle_, bytes_, &how, 0);
  map();
}

JointMemory::JointMemory(int descriptor, std::size_t bytes) : bytes_(bytes) {
  FLASH_DRIVER(cuMemImportFromShareableHandle, &handle_,
               reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  map();
}

// After a kernel has crashed these fail as well; the crash was reported where it was noticed.
JointMemory::~JointMemory() {
  const auto place = reinterpret_cast<CUdeviceptr>(data_);
  (void)driver<decltype(cuMemUnmap)>("cuMemUnmap")(place, bytes_);
  (void)driver<decltype(cuMemAddressFree)>("cuMemAddressFree")(place, bytes_);
  (void)driver<decltype(cuMemRelease)>("cuMemRelease")(handle_);
}

int JointMemory::descriptor() const {
  int fd = -1;
  FLASH_DRIVER(cuMemExportToShareableHandle, &fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
               0);
  return fd;
}

void JointMemory::map() {
  CUdeviceptr place = 0;
  FLASH_DRIVER(cuMemAddressReserve, &place, bytes_, 0, 0, 0);
  FLASH_DRIVER(cuMemMap, place, bytes_, 0, handle_, 0);
  CUmemAccessDesc access{};
  access.location = here();
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  FLASH_DRIVER(cuMemSetAccess, place, bytes_, &access, 1);
  data_ = reinterpret_cast<char*>(place);
}

#endif

}  // namespace flash::grading
