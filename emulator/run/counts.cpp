#include "emulator/run/counts.hpp"

#include <cstdlib>
#include <fstream>

#include "emulator/run/device_memory.hpp"
#include "emulator/run/worker.hpp"

namespace flash::simt {

Counted& Counted::operator+=(const Counted& other) {
  requests += other.requests, lanes += other.lanes, partial += other.partial;
  bytes += other.bytes, sectors += other.sectors;
  wavefronts += other.wavefronts, least += other.least;
  work += other.work, slowest += other.slowest;
  return *this;
}

Counts* Counts::wanted() {
  static Counts* const instance = []() -> Counts* {
    const char* const file = std::getenv("FLASH_SIMT_COUNTS");
    if (file == nullptr || *file == '\0') return nullptr;
    std::ofstream(file)
        << "launch\tkernel\tblocks\tthreads\tshared\tplace\twhat\ttensor\twidth\t"
        << "requests\tlanes\tpartial\tbytes\tsectors\twavefronts\tleast\twork\tslowest\t"
        << "problem\tsymbol\toffsets\tfirst\n";
    return new Counts(file);
  }();
  return instance;
}

void Counts::add(std::uintptr_t pc, const char* what, const void* memory, unsigned width,
                 const Counted& counted, const std::array<std::uint32_t, 32>& offsets,
                 std::uint32_t lanes) {
  OfCode& code = of_code_[{pc, what, memory, width}];
  code.sum += counted;
  if (counted.sectors + counted.wavefronts <= code.most) return;
  code.most = counted.sectors + counted.wavefronts;
  code.offsets = offsets;
  code.lanes = lanes;
}

// Code of a header counts for the line that called it.
void Counts::come(std::uintptr_t pc, const Module& module, const void* top) {
  const auto [found, is_new] = places_.try_emplace(pc);
  if (!is_new) return;
  found->second = locate(module, pc);
  if (found->second.file.ends_with(".cu")) return;
  if (const Location caller = calls_from_kernel(module, top).innermost; caller.line != 0)
    found->second = caller;
}

void Counts::write(const Launch& launch) {
  std::ofstream file(file_, std::ios::app);
  const std::size_t shared =
      launch.call.shared_bytes + static_shared_bytes(launch.module, launch.call.function);
  const std::string symbol =
      function_at(launch.module, reinterpret_cast<std::uintptr_t>(launch.call.function));
  const auto line = [&](const Location& where, const std::string& what, const std::string& tensor,
                        unsigned width, const Counted& n, const std::string& offsets,
                        std::size_t first) {
    file << launch.number << '\t' << launch.call.name << '\t' << launch.blocks() << '\t'
         << launch.threads() << '\t' << shared << '\t' << place_text(where) << '\t' << what << '\t'
         << tensor << '\t' << width << '\t' << n.requests << '\t' << n.lanes << '\t' << n.partial
         << '\t' << n.bytes << '\t' << n.sectors << '\t' << n.wavefronts << '\t' << n.least << '\t'
         << n.work << '\t' << n.slowest << '\t' << problem_ << '\t' << symbol << '\t' << offsets
         << '\t' << first << '\n';
  };
  for (const auto& [key, code] : of_code_) {
    const auto& [pc, what, memory, width] = key;
    const Allocation* const allocation =
        memory == nullptr ? nullptr : DeviceMemory::instance().find(memory);
    const std::string tensor = memory == nullptr          ? "shared memory"
                               : allocation == nullptr    ? "a variable"
                               : allocation->name.empty() ? "device memory"
                                                          : allocation->name;
    std::string offsets;
    for (unsigned lane = 0; lane < 32; ++lane) {
      if (lane > 0) offsets += ',';
      if ((code.lanes >> lane & 1) != 0) offsets += std::to_string(code.offsets[lane]);
    }
    const bool is_named = allocation != nullptr && allocation->first_element != nullptr;
    line(places_[pc], what, tensor, width, code.sum, offsets,
         is_named ? allocation->offset(allocation->first_element) : 0);
  }
  for (const auto& [key, counted] : of_sites_) {
    const auto& [path, number, what] = key;
    line({shown_path(path), number}, what, "", 0, counted, "", 0);
  }
  places_.clear();
  of_code_.clear();
  of_sites_.clear();
}

void note_problem(const std::string& text) {
  if (Counts* const counts = Counts::wanted()) counts->note_problem(text);
}

}  // namespace flash::simt
