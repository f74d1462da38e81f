#include "common/memory_meter.hpp"

#include <dlfcn.h>
#include <malloc.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "common/oracle.hpp"
#include "common/tensor.hpp"
#include "harness/catch.hpp"

using namespace flash;

TEST_CASE("the peak of a call counts what it held at once, not what it held in all") {
  const char* volatile seen = nullptr;  // else a compiler may leave the allocations out
  const std::size_t extra = host_memory::extra_bytes_of([&] {
    for (int i = 0; i < 10; ++i) {
      const std::vector<char> buffer(100000);
      seen = buffer.data();
    }
  });
  CHECK(seen != nullptr);
  CHECK(extra >= 100000);
  CHECK(extra < 150000);
}

TEST_CASE("aligned tensors are counted, and memory that another shared library allocates") {
  CHECK(host_memory::extra_bytes_of([] { Tensor<float, 1> t({50000}); }) >= 200000);
  const Tensor<float, 3> x({1, 100, 100});
  CHECK(host_memory::extra_bytes_of([&] { (void)softmax_oracle(x.view()); }) >=
        80000);  // in libflash_common
}

TEST_CASE("what is freed is given back to the count") {
  const std::size_t before = host_memory::in_use();
  { std::vector<double> buffer(1000); }
  CHECK(host_memory::in_use() == before);
}

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
TEST_CASE("libraries that are loaded later find the functions that count") {
  const auto check = [](const char* name, auto* function) {
    INFO(name);
    CHECK(dlsym(RTLD_DEFAULT, name) == reinterpret_cast<void*>(function));
  };
  check("malloc", &malloc);
  check("calloc", &calloc);
  check("realloc", &realloc);
  check("memalign", &memalign);
  check("aligned_alloc", &aligned_alloc);
  check("posix_memalign", &posix_memalign);
  check("free", &free);
}
#endif

TEST_CASE("a limit turns an allocation into OutOfMemory") {
  host_memory::set_limit(host_memory::in_use() + 1000000);
  bool refused = false;
  try {
    Tensor<float, 1> t({1000000});
  } catch (const OutOfMemory&) {
    refused = true;
  }
  CHECK_NOTHROW((Tensor<float, 1>({1000})));
  host_memory::set_limit(std::nullopt);
  CHECK(refused);
  CHECK_NOTHROW((Tensor<float, 1>({1000000})));
}
