// A Measurement in a message between judge and runner.
#pragma once

#include "harness/judge/protocol.hpp"
#include "part1_softmax_matmul/measure.hpp"

namespace flash::grading {

inline void put(Message& message, const Measurement& m) {
  message.integers[0] = m.out_of_memory;
  set_text(message, m.message);
  message.numbers[0] = m.mean_ms;
  message.numbers[1] = m.std_ms;
  message.numbers[2] = m.peak_MiB;
}

inline Measurement measurement_in(const Message& message) {
  return {.out_of_memory = message.integers[0] != 0,
          .message = message.text,
          .mean_ms = message.numbers[0],
          .std_ms = message.numbers[1],
          .peak_MiB = message.numbers[2]};
}

}  // namespace flash::grading
