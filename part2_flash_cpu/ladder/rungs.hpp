// The rungs' functions, as ladder.cpp enters them: each file N_name.cpp defines attention_N::functions.
#pragma once

#include "common/attention_registry.hpp"

namespace flash {

namespace attention_1 {
extern const AttentionFunctions functions;
}
namespace attention_2 {
extern const AttentionFunctions functions;
}
namespace attention_3 {
extern const AttentionFunctions functions;
}
namespace attention_4 {
extern const AttentionFunctions functions;
}

}  // namespace flash
