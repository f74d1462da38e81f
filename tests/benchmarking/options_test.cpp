// The command line of a benchmark: what is accepted, and the line that answers what is not.
#include "benchmarking/options.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "harness/catch.hpp"

using namespace flash;

namespace {

struct Parsed {
  bool quick = false;
  std::optional<std::int64_t> passes;
  std::optional<std::vector<std::int64_t>> sizes;
  std::optional<std::string> device;
  std::optional<Strings> names;
  std::optional<std::size_t> limit;
  std::filesystem::path output = "default.csv";
};

Parsed parse(std::vector<const char*> words) {
  Parsed parsed;
  Options options("program", "Purpose.");
  options.flag("quick", "less", parsed.quick);
  options.integer("passes", "how many", parsed.passes, 1, 100);
  options.integers("sizes", "which", parsed.sizes, 1, 1024);
  options.choice("device", "where", parsed.device, {"gpu", "cpu"});
  options.names("names", "whose", parsed.names);
  options.bytes("limit", "memory", parsed.limit);
  options.file("output", "file", parsed.output);
  words.insert(words.begin(), "program");
  const bool go_on = options.parse(static_cast<int>(words.size()), words.data());
  REQUIRE(go_on);  // parse() may throw, which REQUIRE would catch
  return parsed;
}

std::string error_of(const std::vector<const char*>& words) {
  try {
    parse(words);
  } catch (const OptionError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("options take values behind a space or an equals sign, and keep their defaults without") {
  CHECK(!parse({}).passes);
  CHECK(parse({}).output == "default.csv");
  const Parsed parsed = parse({"--quick", "--passes", "7", "--sizes=128,64", "--device", "cpu",
                               "--names", "two,one", "--limit=1.5KiB", "--output", "a=b.csv"});
  CHECK(parsed.quick);
  CHECK(parsed.passes == 7);
  CHECK(parsed.sizes == std::vector<std::int64_t>{128, 64});
  CHECK(parsed.device == "cpu");
  CHECK(parsed.names == Strings{"two", "one"});
  CHECK(parsed.limit == std::size_t{1536});
  CHECK(parsed.output == "a=b.csv");
  CHECK(parse({"--limit", "1"}).limit == std::size_t{1});
  CHECK(parse({"--limit", "4096B"}).limit == std::size_t{4096});
  CHECK(parse({"--limit", "512MiB"}).limit == std::size_t{512} << 20);
  CHECK(parse({"--limit", "2GiB"}).limit == std::size_t{2} << 30);
}

TEST_CASE("a wrong command line is answered with the option, the value and what it had to be") {
  for (const char* wrong :
       {"0", "-1", "1.5.2GiB", "1GB", "GiB", "", "inf", "1e9", "1 GiB", "9999999999GiB", "0.1B"})
    CHECK(error_of({"--limit", wrong}) ==
          "--limit is '" + std::string(wrong) +
              "'; it must be at least 1 byte, like 4096, 512MiB or 1.5GiB");
  for (const char* wrong : {"0", "101", "ten", "7x", "7.0", "99999999999999999999"}) {
    // CLI11's versions write the range in different ways.
    const std::string error = error_of({"--passes", wrong});
    CHECK(error.find("--passes: Value " + std::string(wrong) + " not in range") == 0);
    CHECK(error.find("100") != std::string::npos);
  }
  for (const char* wrong : {"64;128", "64,2048", "0"})
    CHECK(error_of({"--sizes", wrong}).find("--sizes: Value ") == 0);
  CHECK(error_of({"--device", "tpu"}).find("--device: tpu not in {gpu,cpu}") == 0);
  CHECK(error_of({"--colour", "red"}).find("--colour") != std::string::npos);
  CHECK(error_of({"--names", "red", "blue"}).find("blue") != std::string::npos);
  CHECK(error_of({"--passes"}).find("--passes") == 0);
  CHECK(error_of({"--passes", "1", "--passes=2"}).find("--passes") == 0);
}
