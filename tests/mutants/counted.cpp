// Launches what `./lab counts` compares: the small kernels, or the kernels of tasks:
//
//   emulator_counts [TASK LIBRARY]...
#include <functional>
#include <map>
#include <string>

#include "bonus_backward/flash_backward_cuda.hpp"
#include "bonus_decode/flash_decode.hpp"
#include "emulator/counts/mark.hpp"
#include "mutants/launches.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"
#include "part3_flash_cuda/flash_attention_cuda.hpp"

namespace flash {
namespace {

using Run = std::function<void(const char* library)>;

const std::map<std::string, Run> kTasks{
    {"fused_cuda",
     [](const char* library) {
       mutants::softmax_matmul(
           [&](const auto& pass) {
             load_task<FusedCudaTask>(library).fused_softmax_matmul_cuda(pass, {32, 32});
           },
           {{1, 64, 128, 256}});
     }},
    {"flash_forward_cuda",
     [](const char* library) {
       for (const bool causal : {false, true})
         mutants::forward<float>(
             [&](auto pass) {
               pass.options.causal = causal;
               load_task<FlashForwardCudaTask>(library).of<float>().flash_attention_forward_cuda(
                   pass, {});
             },
             {{1, 1, 128, 128, 64}});
     }},
    {"flash_backward_cuda",
     [](const char* library) {
       // Of 16 bits, in a width for which a build without a GPU has the same tiles.
       mutants::backward<Half>(
           load_task<FlashBackwardCudaTask>(library).of<Half>().flash_attention_backward_cuda,
           {1, 1, 128, 128, 256});
     }},
    {"flash_decode_cuda",
     [](const char* library) {
       mutants::decode<float>(load_task<FlashDecodeCudaTask>(library).of<float>().flash_decode_cuda,
                              {1100, 40});
     }},
};

}  // namespace
}  // namespace flash

int main(int argc, char** argv) {
  if (argc == 1) flash::run_counted_kernels();
  for (int n = 1; n + 1 < argc; n += 2) {
    flash::mark(argv[n]);
    flash::kTasks.at(argv[n])(argv[n + 1]);
  }
}
