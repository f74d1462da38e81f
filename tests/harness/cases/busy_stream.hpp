// A stream that does not wait for the default one and has 2 GiB to write first: the inputs of a
// call on it are there only when it comes to them. A kernel that ignores the stream that it was
// given runs before.
#pragma once

#include "common/stream.hpp"

namespace flash::harness {

// In a judge, for a call of a runner on a GPU.
Stream busy_stream();

}  // namespace flash::harness
