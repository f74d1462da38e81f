// An AttentionMeasurement in a message between judge and runner.
#pragma once

#include <algorithm>
#include <iterator>

#include "harness/judge/protocol.hpp"
#include "part3_flash_cuda/measure_attention.hpp"

namespace flash::grading {

inline void put(Message& message, const AttentionMeasurement& m) {
  message.integers[0] = static_cast<int>(m.status);
  set_text(message, m.message);
  const double numbers[] = {m.forward_ms_mean,      m.forward_ms_std,  m.forward_peak_MiB,
                            m.backward_ms_mean,     m.backward_ms_std, m.backward_peak_MiB,
                            m.saved_activations_MiB};
  std::copy(std::begin(numbers), std::end(numbers), message.numbers);
}

// What is no status of the contract is an error.
inline AttentionMeasurement attention_measurement_in(const Message& message) {
  const auto status = message.integers[0];
  const auto most = static_cast<std::int64_t>(AttentionStatus::kError);
  const double* const numbers = message.numbers;
  return {.status = AttentionStatus(static_cast<int>(status < 0 || status > most ? most : status)),
          .message = message.text,
          .forward_ms_mean = numbers[0],
          .forward_ms_std = numbers[1],
          .forward_peak_MiB = numbers[2],
          .backward_ms_mean = numbers[3],
          .backward_ms_std = numbers[4],
          .backward_peak_MiB = numbers[5],
          .saved_activations_MiB = numbers[6]};
}

}  // namespace flash::grading
