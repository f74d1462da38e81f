// What cases ask of a call on a device beside its results: memory, its stream, and what it moves.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "common/cuda/device.hpp"
#include "harness/cases/attention_case.hpp"
#include "harness/cases/busy_stream.hpp"

namespace flash::harness {

// The most device memory that a call has beyond what there was before, in bytes. Throws where its
// threads have much memory of their own.
template <class Run>
std::size_t extra_device_bytes(Run run) {
  device::synchronize();
  const std::size_t before = device::memory_in_use();
  device::reset_peak_memory();
  device::reset_host_calls();
  run();
  // The emulator also sees what device::allocate() did not give.
  const auto calls = device::host_calls();
  device::synchronize();
  if (calls && !calls->local_memory.empty()) throw KernelError(calls->local_memory);
  return std::max(device::peak_memory() - before, calls ? calls->peak_bytes : 0);
}

inline Verdict launches_nothing() { return {false, "It launches no kernel."}; }

// Whether run(stream) enqueues all that it does on the stream, and returns without a wait: on the
// emulator, which writes that down.
template <class Run>
Verdict enqueues_on_its_stream(Run run) {
  const device::IndependentStream stream;
  device::reset_host_calls();
  run(stream.get());
  const auto calls = device::host_calls(stream.get());
  if (calls && calls->blocks == 0) return launches_nothing();
  if (calls && !calls->elsewhere.empty())
    return {false, "It enqueues " + calls->elsewhere[0] +
                       " on another stream than the one that it was given."};
  if (calls && !calls->waits.empty())
    return {false,
            "It calls " + calls->waits[0] +
                ", which waits for the device; the call has to return when all is enqueued."};
  return {true, ""};
}

// What has pass(), copy_back() and differing_output(): a call, or its tensors.
template <class Call>
auto& tensors_of(Call& call) {
  if constexpr (requires { call.tensors; })
    return call.tensors;
  else
    return call;
}

// Whether compute(pass) enqueues all of its kernels on the pass's stream, in two cases: on the
// emulator, and on a GPU with a stream that is busy, where a kernel on another one reads what was
// there before the inputs, NaN.
template <class Call, class Problem, class Compute>
void add_cases_of_its_stream(TaskUnderTest& task, const std::string& requirement,
                             const Problem& small, const Problem& large, Compute compute) {
  const std::string name = "in the order of its stream";
  task.add(name, requirement, Needs::kEmulator, [small, compute](auto seed) {
    const Call call(small, seed);
    return enqueues_on_its_stream([&](Stream stream) {
      auto pass = tensors_of(call).pass();
      pass.stream = stream;
      compute(pass);
    });
  });
  task.add(name, requirement, Needs::kGpu, [large, compute](auto seed) {
    Call call(large, seed);
    auto pass = tensors_of(call).pass();
    pass.stream = busy_stream();
    compute(pass);
    Verdict verdict = call.verdict();
    if (!verdict.pass)
      verdict.text =
          "A kernel did not wait for what was enqueued on `stream` before it.\n" + verdict.text;
    return verdict;
  });
}

// The kernels of the next call are not run. In a judge, for a runner on the emulator.
void skip_next_kernels();

// Whether run() launches thread blocks of so many queries, and of at most so many threads, as the
// contract has it. Otherwise one configuration could stand for all. `asked` says which.
template <class Run>
std::string wrong_launch(const std::string& asked, std::size_t blocks, std::size_t threads,
                         Run run) {
  device::reset_host_calls();
  skip_next_kernels();
  run();
  const auto calls = device::host_calls();
  if (!calls) return "";
  if (calls->blocks != blocks)
    return "With " + asked + " it launches " + std::to_string(calls->blocks) +
           " thread blocks; the contract asks for " + std::to_string(blocks) + " here.";
  return calls->threads <= threads
             ? ""
             : "With " + asked + " it launches thread blocks of " + std::to_string(calls->threads) +
                   " threads; the contract asks for at most " + std::to_string(threads) + ".";
}

// More batches or heads than a grid is tall or deep (65535). The emulator would take too long for
// as many blocks, so that here it checks the launches alone; a GPU runs them.
template <class Run>
Verdict launches_many(Run run) {
  for (const AttentionShape& shape :
       {AttentionShape{65600, 1, 1, 3, 2}, AttentionShape{1, 65600, 1, 3, 2}}) {
    device::reset_host_calls();
    skip_next_kernels();
    run(shape);
    if (const auto calls = device::host_calls(); calls && calls->blocks == 0)
      return launches_nothing();
  }
  return {true, ""};
}

// Whether two calls give the same results, and right ones.
template <class Call, class Problem, class Run>
Verdict gives_the_same_bits(const Problem& problem, std::uint64_t seed, Run run) {
  Call first(problem, seed), second(problem, seed);
  run(first);
  run(second);
  tensors_of(second).copy_back();
  const Verdict verdict = first.verdict();
  const std::string differing = tensors_of(first).differing_output(tensors_of(second));
  return differing.empty()
             ? verdict
             : Verdict{false, "Two calls with the same inputs give two results: " + differing +
                                  " differs."};
}

// In a judge, of the last call: whether races alone were found, and how many bytes kernels wrote to
// device memory beside its tensors or read back from its outputs.
bool only_races_were_found();
std::size_t workspace_bytes();

// Runs a call whose accesses are counted. A race is found by a case of its own, and costs no points
// here: code goes on after it, and its results have to be right. What is counted is the traffic of
// the tensors, so that kernels have no other memory where the contract has none: in a few bytes of
// it thread blocks would wait for each other.
inline constexpr std::size_t kMany = ~std::size_t{0};  // where it is measured otherwise
template <class Run>
void despite_races(Run run, std::size_t most_elsewhere = 0) {
  try {
    run();
  } catch (const KernelError&) {
    if (!only_races_were_found()) throw;
  }
  if (const std::size_t bytes = workspace_bytes(); bytes > most_elsewhere)
    throw KernelError("Its kernels write " + std::to_string(bytes) +
                      " bytes to device memory that is none of the call's tensors, or read them "
                      "back from its outputs; " +
                      (most_elsewhere > 0 ? std::to_string(most_elsewhere) + " are" : "none is") +
                      " allowed. A kernel reads its inputs itself, and keeps what it computes "
                      "in registers and in shared memory.");
}

// Traffic is counted in few calls, since that takes time. Every second of them has several heads or
// batches, and strides; the seed says which. A wrong result of such a call is a matter of other
// cases, and costs their points alone.
inline bool is_plain_call(std::uint64_t seed, std::uint64_t n) { return (seed + n) % 2 == 0; }
inline Verdict of_results(bool is_plain, const Verdict& wrong) {
  return is_plain ? wrong : Verdict{true, ""};
}

// What a kernel has to move of one tensor since device::reset_traffic(). Only the emulator's checks
// count.
struct ExpectedTraffic {
  const char* name;
  const void* memory;
  std::size_t most_loaded, stored;  // bytes
  std::string why = "";             // of most_loaded
  bool lanes_may_share = false;     // lanes that store the same to one place are a race, no traffic
  std::size_t least_loaded = 0;     // by blocks that are no larger than they were asked to be
};
// `what` is who moves it: "It", or "The pass for dQ". So many `blocks` share each input evenly: the
// busiest one may load at most twice its share. With a causal mask the last block's share is nearly
// twice the mean: four times the mean is allowed, and three quarters of all. "" when nothing is
// wrong.
inline std::string wrong_traffic(const std::string& what, bool causal,
                                 const std::vector<ExpectedTraffic>& expected, std::size_t blocks) {
  for (const ExpectedTraffic& tensor : expected) {
    const auto traffic = device::traffic(tensor.memory);
    if (!traffic) return "the emulator did not count";
    const std::string of =
        " bytes of " + std::string(tensor.name) + (causal ? " with a causal mask; " : "; ");
    if (traffic->loaded_bytes > tensor.most_loaded)
      return what + " loads " + std::to_string(traffic->loaded_bytes) + of + "at most " +
             std::to_string(tensor.most_loaded) + " are needed" +
             (tensor.why.empty() ? "." : ": " + tensor.why + ".");
    if (traffic->loaded_bytes < tensor.least_loaded)
      return what + " loads " + std::to_string(traffic->loaded_bytes) + of + "at least " +
             std::to_string(tensor.least_loaded) + " are needed: " + tensor.why +
             ". Are its blocks of rows as large as the call asks?";
    const std::size_t loaded = traffic->loaded_bytes,
                      most = causal ? std::min(4 * loaded / blocks, 3 * loaded / 4)
                                    : 2 * loaded / blocks;
    if (traffic->loaded_by_busiest > most)
      return what + " leaves the work to few thread blocks: the busiest one loads " +
             std::to_string(traffic->loaded_by_busiest) + " of the " +
             std::to_string(traffic->loaded_bytes) + of + "at most " + std::to_string(most) +
             " are allowed. Blocks run beside each other: give each a part of the rows or keys.";
    if (tensor.lanes_may_share && traffic->stored_bytes % tensor.stored == 0) continue;
    if (traffic->stored_bytes != tensor.stored)
      return what + " stores " + std::to_string(traffic->stored_bytes) + of + "it has to be " +
             std::to_string(tensor.stored) +
             (tensor.stored > 0 ? ", each element once." : ", since it is an input.");
  }
  return "";
}

// Whether the threads of a block share its work, since device::reset_traffic(), in a case with
// blocks of `threads`: between any two barriers the thread of each block that comes last, with
// those that it may have waited for at a warp operation or an atomic one, has at most 2.5 times as
// many reads and arithmetic operations (a class' judge alone can count these) as one of `threads`
// that share evenly.
inline constexpr char kSharedWork[] = "checks: all threads work";
inline constexpr std::size_t kMostTenthsOfShare = 25;
inline std::string wrong_work(const std::string& what, std::size_t threads) {
  const auto work = device::work().value_or(device::Work{});
  if (work.reads == 0) return what + " reads nothing.";
  const std::size_t share = work.busiest * threads * 10 / work.reads,
                    idle = work.threads - work.readers;
  if (share <= kMostTenthsOfShare) return "";
  const auto times = [](std::size_t tenths) {
    return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
  };
  return what +
         " leaves the work to few threads: the busiest thread, with those that it waits for, " +
         "makes " + times(share) +
         " times the reads of memory and arithmetic operations that each of " +
         std::to_string(threads) + " threads makes where they share evenly; " +
         times(kMostTenthsOfShare) + " times are allowed. " +
         (idle > 0 ? std::to_string(idle) + " of the " + std::to_string(work.threads) +
                         " threads have none. "
          : work.threads < threads ? "There are " + std::to_string(work.threads) + " only. "
                                   : "") +
         "Give each thread a part of the rows, keys or columns, between each two barriers.";
}

// How the warps of a kernel access memory, since device::reset_traffic(). The handouts explain both
// words, and name the two bounds.
inline constexpr char kCoalesced[] = "checks: loads are coalesced",
                      kFewConflicts[] = "checks: few bank conflicts";
inline constexpr std::size_t kMostTimesSectors = 3;  // what moves, by what has to move
// One wavefront of kConflictsOneIn may be due to conflicts. Of more than kEnough wavefronts in
// one of these cases the rest does not count: accesses without conflicts are no excuse for others.
inline constexpr std::size_t kConflictsOneIn = 8, kEnough = 8192;

// `expected` as for wrong_traffic(), of tensors whose rows begin at a sector.
inline std::string wrong_coalescing(const std::string& what,
                                    const std::vector<ExpectedTraffic>& expected) {
  constexpr std::size_t kSector = 32;
  for (const ExpectedTraffic& tensor : expected) {
    const auto traffic = device::traffic(tensor.memory).value_or(device::Traffic{});
    if (traffic.load_requests == 0) return what + " loads nothing of " + tensor.name + ".";
    const std::size_t least = tensor.most_loaded / kSector, sectors = traffic.load_sectors;
    if (sectors > kMostTimesSectors * least)
      return what + " loads " + tensor.name + " in " + std::to_string(sectors) +
             " sectors of 32 bytes, " +
             std::to_string((sectors + traffic.load_requests / 2) / traffic.load_requests) +
             " for a warp's request. " + std::to_string(least) +
             " sectors hold what it needs, and " + std::to_string(kMostTimesSectors) +
             " times as many are allowed. Let neighbouring lanes load neighbouring elements.";
  }
  return "";
}

inline std::string wrong_conflicts(const std::string& what) {
  const auto shared = device::shared_accesses().value_or(device::SharedAccesses{});
  if (shared.wavefronts == 0) return what + " does not use shared memory.";
  const std::size_t wavefronts = std::min<std::size_t>(shared.wavefronts, kEnough);
  if (shared.conflicts * kConflictsOneIn <= wavefronts) return "";
  return what + " takes " + std::to_string(shared.wavefronts) +
         " wavefronts of shared memory, and bank conflicts are the reason for " +
         std::to_string(shared.conflicts) + " of them; one in " + std::to_string(kConflictsOneIn) +
         " of " + std::to_string(wavefronts) + " is allowed.";
}

}  // namespace flash::harness
