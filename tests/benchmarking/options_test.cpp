// The command line of a benchmark: what is accepted, and the line that answers what is not.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "benchmarking/options.hpp"
#include "harness/catch.hpp"

using flash::OptionError;
using flash::Options;

namespace {

struct Parsed {
  bool quick = false;
  std::optional<std::int64_t> passes;
  std::optional<std::vector<std::int64_t>> sizes;
  std::optional<std::string> device;
  std::optional<std::vector<std::string>> names;
  std::optional<std::size_t> limit;
  std::filesystem::path output = "default.csv";
};

Parsed parse(std::vector<const char*> words) {
  Parsed parsed;
  Options options("program", "Purpose.");
  options.flag("quick", "less", parsed.quick);
  options.integer("passes", "N", "how many", parsed.passes, 1, 100);
  options.integers("sizes", "which", parsed.sizes, 1, 1024);
  options.choice("device", "where", parsed.device, {"gpu", "cpu"});
  options.choices("names", "whose", parsed.names, {"one", "two"});
  options.bytes("limit", "memory", parsed.limit);
  options.file("output", "file", parsed.output);
  words.insert(words.begin(), "program");
  const bool go_on = options.parse(static_cast<int>(words.size()), words.data());  // outside of REQUIRE: it may throw
  REQUIRE(go_on);
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

TEST_CASE("options that are not given keep their defaults") {
  const Parsed parsed = parse({});
  CHECK(!parsed.quick);
  CHECK(!parsed.passes);
  CHECK(parsed.output == "default.csv");
}

TEST_CASE("options take values behind a space or an equals sign") {
  const Parsed parsed =
      parse({"--quick", "--passes", "7", "--sizes=64,128", "--device", "cpu", "--limit=1.5KiB", "--output", "a=b.csv"});
  CHECK(parsed.quick);
  CHECK(parsed.passes == 7);
  CHECK(parsed.sizes == std::vector<std::int64_t>{64, 128});
  CHECK(parsed.device == "cpu");
  CHECK(parsed.limit == std::size_t{1536});
  CHECK(parsed.output == "a=b.csv");
}

TEST_CASE("byte counts come with a unit or without") {
  CHECK(parse({"--limit", "1"}).limit == std::size_t{1});
  CHECK(parse({"--limit", "4096B"}).limit == std::size_t{4096});
  CHECK(parse({"--limit", "512MiB"}).limit == std::size_t{512} << 20);
  CHECK(parse({"--limit", "2GiB"}).limit == std::size_t{2} << 30);
  for (const char* wrong : {"0", "-1", "1.5.2GiB", "1GB", "GiB", "", "inf", "nan", "1e9", "1 GiB", "9999999999GiB", "0.1B"}) {
    CAPTURE(wrong);
    CHECK(error_of({"--limit", wrong}) ==
          "--limit is '" + std::string(wrong) + "'; it must be at least 1 byte, like 4096, 512MiB or 1.5GiB");
  }
}

TEST_CASE("a wrong integer is answered with its value and its range") {
  for (const char* wrong : {"0", "101", "-5", "ten", "", "7x", "7.0", "99999999999999999999", " 7", "+7"}) {
    CAPTURE(wrong);
    CHECK(error_of({"--passes", wrong}) == "--passes is '" + std::string(wrong) + "'; it must be an integer from 1 to 100");
  }
}

TEST_CASE("a wrong list is answered with its value") {
  for (const char* wrong : {"", ",", "64,", "64,,128", "64;128", "0", "64,64", "64,2048"}) {
    CAPTURE(wrong);
    const std::string wanted = "different integers from 1 to 1024 with commas between, like 16,32";
    CHECK(error_of({"--sizes", wrong}) == "--sizes is '" + std::string(wrong) + "'; it must be " + wanted);
  }
}

TEST_CASE("a wrong choice is answered with the choices") {
  CHECK(error_of({"--device", "tpu"}) == "--device is 'tpu'; it must be one of gpu|cpu");
}

TEST_CASE("a list of choices keeps its order, and a wrong one is answered with the choices") {
  CHECK(parse({"--names", "two,one"}).names == std::vector<std::string>{"two", "one"});
  for (const char* wrong : {"", "three", "one,three", "one,", "one,one"}) {
    CAPTURE(wrong);
    CHECK(error_of({"--names", wrong}) ==
          "--names is '" + std::string(wrong) + "'; it must be different names with commas between, of: one, two");
  }
}

TEST_CASE("words that are no options, and options without their value, are errors") {
  CHECK(error_of({"--colour", "red"}) == "--colour is not an option of program; --help lists them");
  CHECK(error_of({"red"}).find("'red' is not expected here") == 0);
  CHECK(error_of({"--"}).find("'--' is not expected here") == 0);
  CHECK(error_of({"-q"}).find("'-q' is not expected here") == 0);
  CHECK(error_of({"--passes"}) == "--passes has no value; write --passes N");
  CHECK(error_of({"--passes", "--quick"}) == "--passes has no value; write --passes N");
  CHECK(error_of({"--quick=yes"}) == "--quick takes no value; write it without '='");
  CHECK(error_of({"--passes", "1", "--passes=2"}) == "--passes is given twice; once is enough");
  CHECK(error_of({"--output", ""}) == "--output is ''; it must be the name of a file");
}

TEST_CASE("the help names every option") {
  bool quick = false;
  Options options("program", "Purpose.");
  options.flag("quick", "fewer passes\non a second line", quick);
  const std::string help = options.help();
  CHECK(help.find("Purpose.") == 0);
  CHECK(help.find("Usage: program [options]") != std::string::npos);
  CHECK(help.find("--quick") != std::string::npos);
  CHECK(help.find("on a second line") != std::string::npos);
  CHECK(help.find("--help") != std::string::npos);
}
