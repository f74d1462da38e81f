// The CSV on disk.
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
    .columns = {"size", "name", "ms"}, .key = {"size", "name"}, .required = {"size", "name", "ms"}};

// A folder that goes with the test.
class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "flash_csv_XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~Folder() {
    fs::permissions(path_, fs::perms::owner_all);
    fs::remove_all(path_);
  }
  fs::path operator/(const std::string& name) const { return path_ / name; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string error_of(const fs::path& path) {
  try {
    CsvTable table(path, kSchema);
  } catch (const CsvError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a csv row replaces the one with its key and leaves the others in place") {
  const Folder folder;
  CsvTable table(folder / "a/b/results.csv", kSchema);
  table.record({{"size", "64"}, {"name", "one"}, {"ms", "1"}});
  CHECK(read(folder / "a/b/results.csv") == "size,name,ms\n64,one,1\n");
  table.record({{"size", "64"}, {"name", "two"}, {"ms", "2"}});
  table.record({{"size", "64"}, {"name", "one"}});
  table.record({{"size", "128"}, {"name", "one"}, {"ms", "4"}});
  CHECK(read(folder / "a/b/results.csv") == "size,name,ms\n64,one,\n64,two,2\n128,one,4\n");
}

TEST_CASE("a csv row keeps what another program added meanwhile") {
  const Folder folder;
  CsvTable ours(folder / "results.csv", kSchema), theirs(folder / "results.csv", kSchema);
  ours.record({{"size", "1"}});
  theirs.record({{"size", "2"}});
  ours.record({{"size", "3"}});
  CHECK(read(folder / "results.csv") == "size,name,ms\n1,,\n2,,\n3,,\n");
}

TEST_CASE("csv cells with commas, quotes and line ends survive, and carriage returns are no part") {
  const Folder folder;
  write(folder / "results.csv", "size,name,ms\r\n1,one,2\r\n");
  const std::string name = "\"a\", \"\"b\nd\"";
  CsvTable(folder / "results.csv", kSchema).record({{"size", "2"}, {"name", name}});
  const CsvTable again(folder / "results.csv", kSchema);
  REQUIRE(again.rows().size() == 2);
  CHECK(again.rows()[0].at("ms") == "2");
  CHECK(again.rows()[1].at("name") == name);
}

TEST_CASE("a foreign or damaged csv file is named and left as it is") {
  const Folder folder;
  const fs::path file = folder / "results.csv";
  for (const auto& [content, why] :
       {std::pair{"", "has the wrong header"},
        {"other,columns\n1,2\n", "has the wrong header"},
        {"size,name\n1,2\n", "has the wrong header"},
        {"size,name,ms\n1,one\n", "is damaged: row 1 has 2 cells; it must have 3"},
        {"size,name,ms\n1,one,2\n3,two,4", "is damaged: its last line is cut off"},
        {"size,name,ms\n1,\"one,2\n3,two,4\n", "is damaged: a quote is never closed"}}) {
    write(file, content);
    CAPTURE(content);
    CHECK(error_of(file).find(file.string() + " " + why) == 0);
    CHECK(error_of(file).find("left as it is") != std::string::npos);
    CHECK(read(file) == content);
  }
}

TEST_CASE(
    "a csv file that was damaged after it was opened, and a row with an unknown column, are "
    "errors") {
  const Folder folder;
  CsvTable table(folder / "results.csv", kSchema);
  CHECK_THROWS_AS(table.record({{"size", "1"}, {"colour", "red"}}), flash::ArgumentError);
  CHECK(!fs::exists(folder / "results.csv"));
  write(folder / "results.csv", "other\n");
  CHECK_THROWS_AS(table.record({{"size", "1"}}), CsvError);
  CHECK(read(folder / "results.csv") == "other\n");
}

TEST_CASE("a folder in the place of a csv file, and a file in that of its folder, are errors") {
  const Folder folder;
  fs::create_directory(folder / "results.csv");
  CHECK(error_of(folder / "results.csv").find("is not a file") != std::string::npos);
  write(folder / "file", "");
  CHECK(error_of(folder / "file/results.csv").find("its folder") != std::string::npos);
}

TEST_CASE("an older csv file may lack added columns, and its rows are replaced all the same") {
  const Folder folder;
  write(folder / "results.csv", "size,ms\n1,2\n3,4\n");
  CsvSchema schema = kSchema;
  schema.required = {"size", "ms"};
  CsvTable table(folder / "results.csv", schema);
  table.record({{"size", "5"}, {"name", "new"}, {"ms", "6"}});
  table.record({{"size", "1"}, {"name", "one"}, {"ms", "7"}});
  CHECK(read(folder / "results.csv") == "size,name,ms\n1,one,7\n3,,4\n5,new,6\n");
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

TEST_CASE("a csv table leaves no temporary file, written or not") {
  const Folder folder;
  CsvTable table(folder / "results.csv", kSchema);
  table.record({{"size", "1"}});
  table.record({{"size", "2"}});
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
  if (geteuid() == 0) return;  // root may write anywhere
  fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
  CHECK_THROWS_AS(table.record({{"size", "3"}}), CsvError);
  CHECK(read(folder / "results.csv") == "size,name,ms\n1,,\n2,,\n");
}
