// One row of a benchmark. See row.hpp.
#include "benchmarking/row.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>

#include "benchmarking/interrupt.hpp"
#include "benchmarking/screen.hpp"
#include "common/error.hpp"

namespace flash {
namespace {

// The contract's Work on top of a plan.
class PlannedWork final : public Work {
 public:
  PlannedWork(Machine& machine, const RowPlan& plan) : machine_(machine), plan_(plan) {}

  void prepare() override {
    throw_if_interrupted();
    if (plan_.progress) plan_.progress(runs_ + 1);
    machine_.evict_caches();
  }

  void run() override {
    ++runs_;
    try {
      plan_.pass();
    } catch (const std::bad_alloc&) {
      throw OutOfMemory("no host memory");
    }
  }

  void reset_peak_memory() override { machine_.reset_peak_memory(); }
  std::size_t peak_memory_bytes() override {
    return machine_.peak_memory() - std::min(machine_.peak_memory(), plan_.baseline_bytes);
  }

  int runs() const { return runs_; }

 private:
  Machine& machine_;
  const RowPlan& plan_;
  int runs_ = 0;
};

// A processor at rest is slow for its first milliseconds: the passes after the check bring it to its clock, however few
// warm-ups were asked for.
void settle(Machine& machine, Work& work) {
  constexpr auto kTime = std::chrono::milliseconds(50);
  const auto end = std::chrono::steady_clock::now() + kTime;
  while (std::chrono::steady_clock::now() < end) {
    throw_if_interrupted();
    work.run();
    machine.clock().synchronize();
  }
}

// What a broken `measure` gives itself away by; empty when there is nothing.
std::string implausible(const Measurement& measurement, int runs, const RowPlan& plan) {
  if (runs != plan.warmups + plan.passes)
    return format("measure ran the work %d times; it had to be %d warm-ups and %d passes", runs, plan.warmups, plan.passes);
  if (!(measurement.mean_ms > 0) || !std::isfinite(measurement.mean_ms))
    return format("measure gave a mean of %g ms; it must be above 0", measurement.mean_ms);
  if (!(measurement.std_ms >= 0) || !std::isfinite(measurement.std_ms))
    return format("measure gave a standard deviation of %g ms; it must be at least 0", measurement.std_ms);
  return "";
}

Outcome checked_and_measured(Machine& machine, const RowPlan& plan) {
  PlannedWork warm(machine, plan);
  plan.before_check();
  {
    const MemoryCap cap(machine, plan.baseline_bytes, plan.memory_limit);
    warm.run();
    machine.clock().synchronize();
  }
  const std::string wrong = plan.check();
  if (!wrong.empty()) return {"error", "wrong result: " + wrong, {}};

  const MemoryCap cap(machine, plan.baseline_bytes, plan.memory_limit);
  settle(machine, warm);
  PlannedWork work(machine, plan);
  const Measurement measurement = measure(work, machine.clock(), plan.warmups, plan.passes);
  throw_if_interrupted();  // a `measure` that catches everything would swallow it
  if (measurement.out_of_memory) return {"OOM", measurement.message, {}};
  const std::string doubt = implausible(measurement, work.runs(), plan);
  if (!doubt.empty()) return {"error", doubt, {}};
  return {"ok", "", measurement};
}

bool still_works(Machine& machine) {
  try {
    machine.clock().synchronize();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

Outcome run_row(Machine& machine, const RowPlan& plan) {
  Outcome outcome;
  try {
    outcome = checked_and_measured(machine, plan);
  } catch (const NotYetImplemented&) {
    throw;
  } catch (const OutOfMemory& error) {
    outcome = {"OOM", error.what(), {}};
  } catch (const std::bad_alloc&) {
    outcome = {"OOM", "no host memory", {}};
  } catch (const Unsupported& error) {
    outcome = {"unsupported", error.what(), {}};
  } catch (const std::exception& error) {
    outcome = {"error", error.what(), {}};
    outcome.machine_lost = !still_works(machine);
  }
  if (outcome.status == "OOM" && !outcome.machine_lost) machine.release_cached_memory();
  std::replace(outcome.message.begin(), outcome.message.end(), '\n', ' ');
  return outcome;
}

double clock_floor_ms(Machine& machine, int warmups, int passes) {
  class Nothing final : public Work {
   public:
    void run() override {}
    void reset_peak_memory() override {}
    std::size_t peak_memory_bytes() override { return 0; }
  } nothing;
  return measure(nothing, machine.clock(), warmups, passes).mean_ms;
}

}  // namespace flash
