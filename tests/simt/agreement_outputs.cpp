// Writes the outputs of agreement.hpp's problems, in order, as float32: simt_agreement_outputs_BACKEND FILE.
#include <exception>
#include <fstream>
#include <iostream>

#include "common/cuda/device_tensor.hpp"
#include "part1_softmax_matmul/attention_1d.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"
#include "simt/agreement.hpp"

using namespace flash;

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: " << arguments[0] << " FILE\n";
    return 2;
  }
  if (device::count() == 0) return agreement::kNoGpu;
  try {
    std::ofstream file(arguments[1], std::ios::binary);
    const auto write = [&file](const auto& tensor) {
      const auto host = tensor.to_host();
      file.write(reinterpret_cast<const char*>(host.data()), static_cast<std::streamsize>(host.size() * static_cast<Index>(sizeof(float))));
    };
    for (const auto& p : agreement::fused_problems()) {
      const DeviceTensor<float, 3> x(p.x()), v(p.v()), out({p.batch, p.d1, p.d3});
      fused_softmax_matmul_cuda(x.view(), v.view(), out.view(), p.block_1, p.block_2);
      write(out);
    }
    for (const auto& p : agreement::attention_1d_problems()) {
      const DeviceTensor<float, 1> q(p.q()), k(p.k()), v(p.v()), z({p.n});
      attention_1d_cuda(q.view(), k.view(), v.view(), z.view(), p.queries_per_block, p.keys_per_tile);
      write(z);
    }
    file.close();
    if (!file) throw std::runtime_error(std::string(arguments[1]) + " cannot be written");
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
