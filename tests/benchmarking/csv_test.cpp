// The CSV on disk. tests/tools/test_bench.py tests more of it through the programs.
#include "benchmarking/csv.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "harness/catch.hpp"

using flash::CsvError;
using flash::CsvSchema;
using flash::CsvTable;
namespace fs = std::filesystem;

namespace {

const CsvSchema kSchema{
    .columns = {"size", "name", "ms"}, .key = {"size", "name"}, .required = {"size", "ms"}};

// A file in a folder of its own, which goes with the test.
struct File {
  File() {
    std::string pattern = (fs::temp_directory_path() / "flash_csv_XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    folder = pattern;
    path = folder / "results.csv";
  }
  ~File() {
    fs::permissions(folder, fs::perms::owner_all);
    fs::remove_all(folder);
  }
  std::string read() const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& text) const { std::ofstream(path, std::ios::binary) << text; }

  fs::path folder, path;
};

std::string error_of(const fs::path& path) {
  try {
    CsvTable table(path, kSchema);
  } catch (const CsvError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a csv row replaces the one with its key; others stay, and what others add meanwhile") {
  const File file;
  CsvTable ours(file.path, kSchema), theirs(file.path, kSchema);
  ours.record({{"size", "64"}, {"name", "one"}, {"ms", "1"}});
  theirs.record({{"size", "64"}, {"name", "two"}, {"ms", "2"}});
  ours.record({{"size", "64"}, {"name", "one"}});
  ours.record({{"size", "128"}, {"name", "one"}, {"ms", "4"}});
  CHECK(file.read() == "size,name,ms\n64,one,\n64,two,2\n128,one,4\n");
}

TEST_CASE("an older csv file may lack added columns, and its rows are replaced all the same") {
  const File file;
  file.write("size,ms\r\n1,2\r\n3,4\r\n");
  CsvTable table(file.path, kSchema);
  table.record({{"size", "5"}, {"name", "new"}, {"ms", "6"}});
  table.record({{"size", "1"}, {"name", "one"}, {"ms", "7"}});
  CHECK(file.read() == "size,name,ms\n1,one,7\n3,,4\n5,new,6\n");
}

TEST_CASE("a foreign or damaged csv file is named and left as it is, also while it is in use") {
  const File file;
  CsvTable table(file.path, kSchema);
  CHECK_THROWS_AS(table.record({{"size", "1"}, {"colour", "red"}}), flash::ArgumentError);
  CHECK(!fs::exists(file.path));
  for (const auto& [content, why] :
       {std::pair{"", "has the wrong header"},
        {"other,columns\n1,2\n", "has the wrong header"},
        {"size,name\n1,2\n", "has the wrong header"},
        {"size,name,ms\n1,one\n", "is damaged: row 1 has 2 cells; it must have 3"},
        {"size,name,ms\n1,one,2\n3,two,4", "is damaged: its last line is cut off"}}) {
    file.write(content);
    CAPTURE(content);
    CHECK(error_of(file.path).find(file.path.string() + " " + why) == 0);
    CHECK(error_of(file.path).find("left as it is") != std::string::npos);
    CHECK_THROWS_AS(table.record({{"size", "1"}}), CsvError);
    CHECK(file.read() == content);
  }
  CHECK(error_of(file.folder).find("is not a file") != std::string::npos);
  CHECK(error_of(file.path / "results.csv").find("its folder") != std::string::npos);
  if (geteuid() == 0) return;  // root may write anywhere
  file.write("size,name,ms\n");
  fs::permissions(file.folder, fs::perms::owner_read | fs::perms::owner_exec);
  CHECK_THROWS_AS(table.record({{"size", "3"}}), CsvError);
}

TEST_CASE("the columns of the benchmarks begin with the homework's") {
  const CsvSchema softmax = flash::csv_schema("softmax_matmul"),
                  attention = flash::csv_schema("attention");
  CHECK(softmax.columns[0] == "batch_size");
  CHECK(softmax.columns[8] == "forward_peak_MiB");
  CHECK(attention.columns[0] == "implementation");
  CHECK(attention.columns[9] == "gpu");
  CHECK(attention.key == flash::Strings{"implementation", "d_model", "seq_len", "gpu", "device",
                                        "dtype", "batch", "heads", "causal", "query_scale"});
  CHECK(std::count(attention.required.begin(), attention.required.end(), "scaled_error") == 0);
}
