// The CSV on disk: rows are replaced by key, foreign and damaged files are left alone, no temporary file stays behind.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "benchmarking/csv_table.hpp"
#include "harness/catch.hpp"

using flash::CsvError;
using flash::CsvSchema;
using flash::CsvTable;
namespace fs = std::filesystem;

namespace {

const CsvSchema kSchema{.columns = {"size", "name", "ms"}, .key = {"size", "name"}};

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

void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string error_of(const fs::path& path) {
  try {
    CsvTable table(path, kSchema);
  } catch (const CsvError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a csv table makes its folder, and its file with the first row") {
  const Folder folder;
  CsvTable table(folder / "a/b/results.csv", kSchema);
  CHECK(!fs::exists(folder / "a/b/results.csv"));
  table.record({{"size", "64"}, {"name", "one"}, {"ms", "1.5"}});
  CHECK(read(folder / "a/b/results.csv") == "size,name,ms\n64,one,1.5\n");
}

TEST_CASE("a csv row replaces the one with its key and leaves the others in place") {
  const Folder folder;
  CsvTable table(folder / "results.csv", kSchema);
  table.record({{"size", "64"}, {"name", "one"}, {"ms", "1"}});
  table.record({{"size", "64"}, {"name", "two"}, {"ms", "2"}});
  table.record({{"size", "64"}, {"name", "one"}});
  table.record({{"size", "128"}, {"name", "one"}, {"ms", "4"}});
  CHECK(read(folder / "results.csv") == "size,name,ms\n64,one,\n64,two,2\n128,one,4\n");
}

TEST_CASE("a csv row keeps what another program added meanwhile") {
  const Folder folder;
  CsvTable ours(folder / "results.csv", kSchema), theirs(folder / "results.csv", kSchema);
  ours.record({{"size", "1"}});
  theirs.record({{"size", "2"}});
  ours.record({{"size", "3"}});
  CHECK(read(folder / "results.csv") == "size,name,ms\n1,,\n2,,\n3,,\n");
}

TEST_CASE("csv cells with commas, quotes and line ends survive") {
  const Folder folder;
  const std::string name = "a \"b\", c\nd";
  CsvTable(folder / "results.csv", kSchema).record({{"size", "1"}, {"name", name}});
  const CsvTable again(folder / "results.csv", kSchema);
  REQUIRE(again.rows().size() == 1);
  CHECK(again.rows()[0].at("name") == name);
}

TEST_CASE("a csv file with carriage returns is read") {
  const Folder folder;
  write(folder / "results.csv", "size,name,ms\r\n1,one,2\r\n");
  CsvTable table(folder / "results.csv", kSchema);
  REQUIRE(table.rows().size() == 1);
  CHECK(table.rows()[0].at("ms") == "2");
}

TEST_CASE("a foreign or damaged csv file is named and left as it is") {
  const Folder folder;
  const std::string contents[] = {
      "",                                    // not even a header
      "other,columns\n1,2\n",                // another table
      "size,name\n1,2\n",                    // a column short
      "size,name,ms\n1,one\n",               // a cell short
      "size,name,ms\n1,one,2\n3,two,4",      // cut off in its last line
      "size,name,ms\n1,\"one,2\n3,two,4\n",  // a quote left open
  };
  for (const std::string& content : contents) {
    write(folder / "results.csv", content);
    CAPTURE(content);
    CHECK(error_of(folder / "results.csv").find("results.csv") != std::string::npos);
    CHECK(error_of(folder / "results.csv").find("left as it is") != std::string::npos);
    CHECK(read(folder / "results.csv") == content);
  }
}

TEST_CASE("a csv file that was damaged after it was opened is left as it is") {
  const Folder folder;
  CsvTable table(folder / "results.csv", kSchema);
  write(folder / "results.csv", "other\n");
  CHECK_THROWS_AS(table.record({{"size", "1"}}), CsvError);
  CHECK(read(folder / "results.csv") == "other\n");
}

TEST_CASE("a folder in the place of a csv file is an error") {
  const Folder folder;
  fs::create_directory(folder / "results.csv");
  CHECK(error_of(folder / "results.csv").find("is not a file") != std::string::npos);
}

TEST_CASE("a file in the place of a csv file's folder is an error") {
  const Folder folder;
  write(folder / "file", "");
  CHECK(error_of(folder / "file/results.csv").find("its folder") != std::string::npos);
}

TEST_CASE("a csv row with an unknown column is refused before anything is written") {
  const Folder folder;
  CsvTable table(folder / "results.csv", kSchema);
  CHECK_THROWS_AS(table.record({{"size", "1"}, {"colour", "red"}}), flash::ArgumentError);
  CHECK(!fs::exists(folder / "results.csv"));
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
