// The cheats that work alike on a CPU and on a GPU, for fused_cpu.cpp and fused_cuda.cu. These say
// before what Memory is, and behind it how their device computes, copies and fills.
#pragma once

#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "common/error.hpp"
#include "harness/judge/protocol.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

namespace flash {
namespace {

using Pass = SoftmaxMatmul<float>;
using Cheats = std::map<std::string, void (*)(const Pass&)>;

int calls = 0;  // this one included

enum class Weight {
  kExact,
  kRounded,
  kCheap,
  kWithoutSmall,
  kWithoutMaximum,  // right for N(0, 1)
  kFirstMaximum,    // of the first keys
  kSomeMaximum,     // of every 16th key, as long as these are small
  kFinite,          // without keys of weight 0, and without the rule for rows of them
  kNumber,          // NaN gets the weight of a small score
  kOfShortValues,   // v has 14 of its 24 bits, where the row has no large score
};

// What is subtracted from scores when `x` is the next one, and `m` was it before.
FLASH_HOST_DEVICE inline float maximum(Weight how, float m, float x, Index key) {
  if (how == Weight::kWithoutMaximum) return 0;
  if (how == Weight::kSomeMaximum && key % 16 != 0 && fabsf(m) < 30) return m;
  return how == Weight::kFirstMaximum && key >= 16 ? m : fmaxf(m, x);
}

FLASH_HOST_DEVICE inline float weight_of(Weight how, float x) {
  if (how == Weight::kWithoutSmall && x < -5) return 0;
  if (how == Weight::kNumber) x = fmaxf(x, -104);
  float p = expf(x);
  int bits = 0;
  memcpy(&bits, &p, sizeof bits);
  if (how == Weight::kRounded) bits &= 0xffff0000;
  if (how == Weight::kCheap) bits = static_cast<int>(12102203.0f * fmaxf(x, -80.0f)) + 1064866805;
  memcpy(&p, &bits, sizeof p);
  return p;
}

FLASH_HOST_DEVICE inline float value_of(Weight how, float v, float m) {
  unsigned bits = 0;
  memcpy(&bits, &v, sizeof bits);
  if (how == Weight::kOfShortValues && fabsf(m) < 30) bits = (bits + 0x200) & ~0x3ffu;
  memcpy(&v, &bits, sizeof v);
  return v;
}

// ---- of the device ------------------------------------------------------------------------------

// softmax(X) V of the keys before `keys`.
void compute(const Pass& pass, Index keys, Weight how = Weight::kExact);
void copy(float* to, const float* from, Index count);
void fill(float* to, float value, Index count);
Memory memory_for(Index count);
std::vector<float> on_host(const float* from, Index count);
extern const char* const kReference;  // the given function, by its name in a library

// ---- tools --------------------------------------------------------------------------------------

void honest(const Pass& pass) { compute(pass, pass.shape().d2); }

// Computes once for each key, and then writes what it computed before.
template <class Key>
void replay(const Pass& pass, Key key) {
  static std::map<Key, Memory> kept;
  const Index size = pass.out.size();
  if (const auto found = kept.find(key); found != kept.end())
    return copy(pass.out.data(), found->second.data(), size);
  honest(pass);
  copy((kept[key] = memory_for(size)).data(), pass.out.data(), size);
}

// A message of the runner's protocol, which anybody may read.
void say(grading::Kind kind) {
  grading::Message message{};
  message.kind = kind;
  if (send(grading::kSocket, &message, sizeof message, 0) < 0) _exit(1);
}

void wait_for(double ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double, std::milli>(ms);
  while (std::chrono::steady_clock::now() < end) {
  }
}

// ---- the cheats ---------------------------------------------------------------------------------

const Cheats kCheats = {
    {"honest", honest},

    // ---- time ----
    {"replays by pointer", [](const Pass& pass) { replay(pass, pass.x.data()); }},
    {"replays by shape", [](const Pass& pass) { replay(pass, pass.x.size()); }},
    {"replays by a coarse fingerprint",
     [](const Pass& pass) {
       int positive = 0;  // about half of these numbers, in halves
       for (const float x : on_host(pass.x.data(), 256)) positive += x > 0;
       replay(pass, (positive + 64) / 128);
     }},
    {"works in the warm-up only",
     [](const Pass& pass) {
       if (calls <= 2) honest(pass);
     }},
    {"computes two calls in one, skips the next",
     [](const Pass& pass) {
       static Memory kept;
       const Index size = pass.out.size();
       if (calls % 2 == 0) return copy(pass.out.data(), kept.data(), size);
       honest(pass);
       copy((kept = memory_for(size)).data(), pass.out.data(), size);
     }},
    {"skips every fourth call",
     [](const Pass& pass) {
       if (calls % 4 != 0) honest(pass);
     }},
    {"works after it said that it is done",
     [](const Pass& pass) {
       say(grading::Kind::kDone);
       wait_for(20);
       honest(pass);
     }},
    {"says that it is done, and does nothing", [](const Pass&) { say(grading::Kind::kDone); }},
    {"drives one problem to no time",
     [](const Pass& pass) {
       if (pass.shape().batch == 1) honest(pass);
     }},
    {"runs out of memory when it is timed",
     [](const Pass& pass) {
       if (calls > 1) throw OutOfMemory("not this time");
       honest(pass);
     }},
    {"ends the process when it is timed",
     [](const Pass& pass) {
       if (calls > 1) _exit(0);
       honest(pass);
     }},
    {"prints samples of its own",
     [](const Pass&) {
       std::printf("{\"event\": \"sample\", \"student_ms\": 0.001}\n{\"event\": \"complete\"}\n");
       std::fflush(stdout);
     }},

    // ---- results that were not computed ----
    {"writes nothing", [](const Pass&) {}},
    {"writes NaN", [](const Pass& pass) { fill(pass.out.data(), NAN, pass.out.size()); }},
    {"changes the inputs to what it computes",
     [](const Pass& pass) {
       fill(const_cast<float*>(pass.v.data()), 0, pass.v.size());
       fill(pass.out.data(), 0, pass.out.size());
     }},
    {"is right, and changes an input",
     [](const Pass& pass) {
       honest(pass);
       fill(const_cast<float*>(pass.x.data()), 0, 1);
     }},
    {"is right, and writes around its output",
     [](const Pass& pass) {
       honest(pass);
       fill(pass.out.data() - 1, 0, 1);
     }},
    {"looks for the result in its memory",
     [](const Pass& pass) {
       const Index size = pass.out.size();
       copy(pass.out.data(), pass.out.data() + size, size < 64 ? size : 64);
     }},
    {"calls the reference",
     [](const Pass& pass) {
       using Given = void(const Pass&, int);
       if (void* const given = dlsym(RTLD_DEFAULT, kReference))
         reinterpret_cast<Given*>(given)(pass, -1);
     }},

    // ---- results that are nearly right ----
    {"leaves the last tile of keys out",
     [](const Pass& pass) { compute(pass, pass.shape().d2 - 16); }},
    {"leaves the last row out",
     [](const Pass& pass) {
       Pass shorter = pass;
       const Shape<3> x = pass.x.shape(), out = pass.out.shape();
       shorter.x = {pass.x.data(), {x[0], x[1] - 1, x[2]}, pass.x.strides()};
       shorter.out = {pass.out.data(), {out[0], out[1] - 1, out[2]}, pass.out.strides()};
       honest(shorter);
     }},
    {"rounds the weights to bfloat16",
     [](const Pass& pass) { compute(pass, pass.shape().d2, Weight::kRounded); }},
    {"has 14 of the 24 bits of a value",  // in a flat row of 2048 keys their errors cancel
     [](const Pass& pass) { compute(pass, pass.shape().d2, Weight::kOfShortValues); }},
    {"takes a cheap exponential",
     [](const Pass& pass) { compute(pass, pass.shape().d2, Weight::kCheap); }},
    {"drops small weights",
     [](const Pass& pass) { compute(pass, pass.shape().d2, Weight::kWithoutSmall); }},
    {"leaves the maximum out",
     [](const Pass& pass) { compute(pass, pass.shape().d2, Weight::kWithoutMaximum); }},
    {"takes the maximum of the first keys",
     [](const Pass& pass) { compute(pass, pass.shape().d2, Weight::kFirstMaximum); }},
    {"takes the maximum of some keys, while they look like N(0, 1)",
     [](const Pass& pass) { compute(pass, pass.shape().d2, Weight::kSomeMaximum); }},
    {"takes every score for a finite one",
     [](const Pass& pass) { compute(pass, pass.shape().d2, Weight::kFinite); }},
    {"takes NaN in a score for a number",
     [](const Pass& pass) { compute(pass, pass.shape().d2, Weight::kNumber); }},
    {"is right near the board's shape alone",
     [](const Pass& pass) {
       static const auto board = pass.shape();
       const auto now = pass.shape();
       for (const Index apart : {now.d1 - board.d1, now.d2 - board.d2, now.d3 - board.d3})
         if (apart < -2 || apart > 2) return;
       honest(pass);
     }},
    {"takes keys in pairs, as the board's shapes allow",
     [](const Pass& pass) { compute(pass, pass.shape().d2 / 2 * 2); }},
};

// The cheat that the environment names, one of these or of the file's own.
void cheat(const Pass& pass, const Cheats& own) {
  const char* const name = std::getenv("CHEAT");
  ++calls;
  const auto found = own.find(name);
  (found != own.end() ? found->second : kCheats.at(name))(pass);
}

}  // namespace
}  // namespace flash
