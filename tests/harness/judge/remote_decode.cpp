// The functions of the decoding part in the judge: each calls the student's in the runner.
#include "bonus_decode/flash_decode.hpp"
#include "harness/judge/remote.hpp"

namespace flash {

using grading::argument;

void merge_parts(TensorView<const float, 3> part_out, TensorView<const float, 2> part_lse,
                 TensorView<float, 2> out, TensorView<float, 1> lse) {
  (void)grading::remote_call(
      {.function = grading::kMergeParts,
       .arguments = {argument("part_out", part_out), argument("part_lse", part_lse),
                     argument("out", out), argument("lse", lse)}});
}

template <class T>
void flash_decode_cuda(const Decode<T>& pass) {
  grading::device_call(
      {.function = grading::device_function<T>(grading::kFlashDecodeCuda),
       .arguments = {argument("q", pass.q), argument("k", pass.k), argument("v", pass.v),
                     argument("block_table", pass.block_table), argument("lengths", pass.lengths),
                     argument("out", pass.out), argument("lse", pass.lse)},
       .numbers = grading::numbers_of({.scale = pass.scale}),
       .stream = grading::stream_of(pass.stream)});
}
template void flash_decode_cuda(const Decode<float>&);
template void flash_decode_cuda(const Decode<Half>&);
template void flash_decode_cuda(const Decode<BFloat16>&);

}  // namespace flash
