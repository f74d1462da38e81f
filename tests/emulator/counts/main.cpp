// Launches what `./lab counts` compares: the small kernels, then the kernels of the libraries of
// part1.fused_cuda and part3.flash_forward_cuda, whose paths are the arguments.
#include "mutants/launches.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"
#include "part3_flash_cuda/flash_attention_cuda.hpp"

namespace flash {
FLASH_EXPORT void run_counted_kernels();
}

int main(int argc, char** argv) {
  using namespace flash;
  run_counted_kernels();
  if (argc != 3) return 0;
  const auto& fused = load_task<FusedCudaTask>(argv[1]);
  const auto& forward = load_task<FlashForwardCudaTask>(argv[2]);
  mutants::softmax_matmul(
      [&](const auto& pass) {
        fused.fused_softmax_matmul_cuda(pass, {32, 32});
      },
      {{1, 64, 128, 256}});
  for (const bool causal : {false, true})
    mutants::forward<float>(
        [&](auto pass) {
          pass.options.causal = causal;
          forward.of<float>().flash_attention_forward_cuda(pass, {});
        },
        {{1, 1, 128, 128, 64}});
}
