// The emulated CUDA runtime as host code sees it: CUDA's own error codes, memory that host code
// cannot touch, counters, schedules.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "common/cuda/device_tensor.hpp"
#include "common/inputs.hpp"
#include "common/simt/simt.hpp"
#include "harness/catch.hpp"
#include "simt/runtime_kernels.hpp"

using namespace flash;
using namespace flash::runtime_kernels;
using flash::harness::ContainsSubstring;

TEST_CASE("a launch that cannot be gives CUDA's error code") {
  using Size = std::array<unsigned, 3>;
  const Size one{1, 1, 1}, warp{32, 1, 1};
  const std::string wrong = "cudaErrorInvalidConfiguration";
  CHECK(launch_error(one, warp, 0) == "cudaSuccess");
  for (const Size& grid : {Size{0, 1, 1}, Size{1, 1, 0}, Size{1, 65536, 1}})
    CHECK(launch_error(grid, warp, 0) == wrong);
  for (const Size& block : {Size{0, 1, 1}, Size{1025, 1, 1}, Size{32, 33, 1}, Size{1, 1, 65}})
    CHECK(launch_error(one, block, 0) == wrong);
  CHECK(launch_error(one, warp, 48 * 1024 + 1) == "cudaErrorInvalidValue");  // without having asked
}

TEST_CASE("a kernel's own shared arrays count with what the launch asks for") {
  CHECK(shared_memory_errors() == "");
  CHECK_THROWS_WITH(large_array(),
                    ContainsSubstring("its __shared__ arrays take 50176 bytes; nvcc allows 49152"));
}

TEST_CASE("copies check where they go") { CHECK(copy_errors() == ""); }

TEST_CASE("new device memory is no number, and events and streams are complete") {
  const Tensor<float, 1> host = DeviceTensor<float, 1>({100}).to_host();
  for (Index i = 0; i < 100; ++i) CHECK(host(i) != host(i));
  CHECK(streams_and_events() == "");
  CHECK(device::is_emulated());
  CHECK_THAT(device::name(), ContainsSubstring("emulated"));
}

TEST_CASE("host code that follows a device pointer faults, and is told why") {
  const DeviceTensor<float, 1> memory(Tensor<float, 1>({100}));
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    for (const int output : {STDERR_FILENO, STDOUT_FILENO})
      dup2(ends[1], output);  // Catch2 has something to say as well
    const volatile float* const pointer = memory.data();
    _exit(pointer[3] == 0 ? 0 : 1);  // a fault before either
  }
  close(ends[1]);
  char text[512] = {};
  const ssize_t length = read(ends[0], text, sizeof text - 1);
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(length > 0);
  CHECK(std::string(text).find("host code follows a pointer to device memory") !=
        std::string::npos);
  CHECK_FALSE((WIFEXITED(status) && WEXITSTATUS(status) <= 1));
}

TEST_CASE("a kernel that fails leaves the emulator as it was") {
  for (int i = 0; i < 3; ++i) {
    CHECK_THROWS_AS(deadlock(), KernelError);
    CHECK_NOTHROW(transpose(64));
  }
  CHECK(simt::take_findings().empty());  // taken, and thrown; who caught that did not hide it
  CHECK_THAT(simt::first_finding(), ContainsSubstring("kernel waits_for_nobody"));
  simt::reset_counters();
  CHECK(simt::first_finding().empty());
  CHECK_THROWS_WITH(stack_overflow(),
                    ContainsSubstring("has more local variables than its stack holds"));
  CHECK_THROWS_WITH(
      too_little_shared_memory(),
      ContainsSubstring("the block has 256 bytes of dynamic shared memory, which is what the "
                        "launch's shared_bytes says."));
  CHECK_THROWS_WITH(
      throws(),
      ContainsSubstring("The kernel threw an exception, which is impossible on a GPU: a message"));
  CHECK_NOTHROW(transpose(64));
}

TEST_CASE("many blocks on several OS threads give the same result") {
  for (const int threads : {1, 2, 5}) {
    simt::set_os_threads(threads);
    CHECK(sum_of_blocks(1000) == 1000 * 999 / 2);
  }
}

TEST_CASE("counters are exact, whatever the order") {
  for (const char* const schedule : {"forward", "reverse", "random:3"}) {
    simt::set_schedule(simt::parse_schedule(schedule));
    simt::reset_counters();
    transpose(64);  // 4 blocks of 32 x 32, one barrier
    const std::uint64_t bytes = simt::checking() ? 64 * 64 * 4 : 0;  // the checks count them
    const simt::Counters c = simt::counters();
    CHECK(c.launches == 1);
    CHECK(c.blocks == 4);
    CHECK(c.barriers == 4);
    CHECK(c.global_loaded == bytes);
    CHECK(c.global_stored == bytes);
    CHECK(c.shared_loaded == bytes);
    CHECK(c.shared_reads == bytes / 4);
    CHECK(c.shared_stored == bytes);
    CHECK(c.atomics == 0);
  }
  simt::set_schedule({});
}

TEST_CASE("schedules are read from text") {
  CHECK(simt::parse_schedule("reverse").order == simt::Order::kReverse);
  CHECK(simt::parse_schedule("random:17").seed == 17);
  for (const char* const wrong :
       {"", "backward", "random", "random:", "random:x", "random:-1", "random:1234567890123456789"})
    CHECK_THROWS_WITH(simt::parse_schedule(wrong),
                      ContainsSubstring("it must be forward, reverse or random:SEED"));
  CHECK_THROWS_AS(simt::set_os_threads(0), ArgumentError);
}
