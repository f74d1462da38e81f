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

TEST_CASE("a wrong command line is answered with what it had to be") {
  const auto answers = [](const std::string& option, const std::vector<const char*>& values,
                          const std::string& wanted) {
    for (const char* wrong : values)
      CHECK(error_of({option.c_str(), wrong}) ==
            option + " is '" + wrong + "'; it must be " + wanted);
  };
  answers("--limit",
          {"0", "-1", "1.5.2GiB", "1GB", "GiB", "", "inf", "1e9", "1 GiB", "9999999999GiB", "0.1B"},
          "at least 1 byte, like 4096, 512MiB or 1.5GiB");
  answers("--passes", {"0", "101", "-5", "ten", "", "7x", "7.0", "99999999999999999999", " 7"},
          "an integer from 1 to 100");
  answers("--sizes", {"", ",", "64,", "64,,128", "64;128", "0", "64,64", "64,2048"},
          "different integers from 1 to 1024 with commas between, like 16,32");
  answers("--device", {"tpu"}, "one of gpu|cpu");
  answers("--names", {"", "one,", "one,one"}, "different names with commas between");
  answers("--output", {""}, "the name of a file");
  CHECK(error_of({"--colour", "red"}).find("--colour") != std::string::npos);
  CHECK(error_of({"red"}).find("red") != std::string::npos);
  CHECK(error_of({"--passes"}).find("--passes") == 0);
  CHECK(error_of({"--passes", "1", "--passes=2"}).find("--passes") == 0);
}
