// The walls of the house: reads every #include and every list of headers. The table in cmake/rooms.txt is the
// authority; the one in the documents is compared with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using RoomNames = std::set<std::string>;

struct RoomLine {
  std::string room;
  RoomNames others;
};

/// The lines of cmake/rooms.txt, "room: other other...", from top to bottom.
const std::vector<RoomLine>& room_lines() {
  static const std::vector<RoomLine> lines = [] {
    std::vector<RoomLine> found;
    std::ifstream in(fs::path(ULP_SOURCE_DIR) / "cmake/rooms.txt");
    for (std::string line; std::getline(in, line);) {
      if (line.empty() || line.starts_with("#")) continue;
      const size_t colon = line.find(':');
      std::istringstream words(colon == std::string::npos ? "" : line.substr(colon + 1));
      RoomLine& made = found.emplace_back();
      made.room = line.substr(0, colon);
      for (std::string word; words >> word;) made.others.insert(word);
    }
    return found;
  }();
  return lines;
}

// Room -> the rooms it may include besides itself, and does: a permission that nobody uses is taken back.
const std::map<std::string, RoomNames>& allowed() {
  static const std::map<std::string, RoomNames> table = [] {
    std::map<std::string, RoomNames> made;
    for (const RoomLine& line : room_lines()) made[line.room] = line.others;
    return made;
  }();
  return table;
}

const RoomNames kWithoutTorch = {"base", "formats", "kernels", "runtime", "kernels/training"};
const std::string kTool = "cli";  // may include what any room shows

fs::path source_dir() {
  return ULP_SOURCE_DIR;
}

std::string read_text(const fs::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> includes_of(const fs::path& file) {
  static const std::regex pattern(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"])");
  std::vector<std::string> headers;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::smatch match;
    if (std::regex_search(line, match, pattern)) headers.push_back(match[1].str());
  }
  return headers;
}

/// The room of a file or header given as "ulp/room/..." or "cli/...": the longest name in the table. Empty
/// for the headers directly below ulp/ (ulp/quant.h), which are above the rooms.
std::string room_of(const std::string& path) {
  if (path.starts_with(kTool + "/")) return kTool;
  std::string found;
  for (const auto& [room, others] : allowed())
    if (path.starts_with("ulp/" + room + "/") && room.size() > found.size()) found = room;
  return found;
}

struct Include {
  std::string file, room, header, other;  ///< `file` of `room` includes `header` of the room `other`
};

/// Every #include of the rooms and the tool; `other` is empty where the header is not ours.
const std::vector<Include>& all_includes() {
  static const std::vector<Include> found = [] {
    std::vector<Include> made;
    for (const char* folder : {"ulp", "cli"}) {
      for (const auto& entry : fs::recursive_directory_iterator(source_dir() / folder)) {
        const std::string extension = entry.path().extension();
        if (extension != ".h" && extension != ".cpp") continue;
        const std::string file = fs::relative(entry.path(), source_dir()).generic_string();
        for (const std::string& header : includes_of(entry.path()))
          made.push_back({file, room_of(file), header, room_of(header)});
      }
    }
    return made;
  }();
  return found;
}

struct Lists {
  RoomNames public_headers, shared_headers;  ///< as they are included: "ulp/base/error.h"
  bool shown(const std::string& header) const {
    return public_headers.contains(header) || shared_headers.contains(header);
  }
};

/// The headers of a room that a word of its list stands for; '*' is any run of characters in the file's name.
RoomNames headers_named(const std::string& room, const std::string& word) {
  const std::string named = "ulp/" + room + "/" + word;
  const size_t star = named.find('*');
  if (star == std::string::npos) return {named};
  const std::string before = named.substr(0, star), after = named.substr(star + 1);
  RoomNames found;
  for (const auto& entry : fs::directory_iterator(source_dir() / fs::path(named).parent_path())) {
    const std::string header = fs::relative(entry.path(), source_dir()).generic_string();
    if (header.starts_with(before) && header.ends_with(after)) found.insert(header);
  }
  return found;
}

/// What the rooms' CMakeLists.txt say after PUBLIC and SHARED.
const Lists& lists() {
  static const Lists all = [] {
    Lists made;
    for (const auto& [room, others] : allowed()) {
      const std::regex comment("#[^\n]*"), call(R"(ulp_room\(([^)]*)\))");
      const std::string text =
          std::regex_replace(read_text(source_dir() / "ulp" / room / "CMakeLists.txt"), comment, "");
      std::smatch match;
      if (!std::regex_search(text, match, call)) continue;
      std::istringstream words(match[1].str());
      std::string kind;
      for (std::string word; words >> word;) {
        if (std::ranges::all_of(word, [](char c) { return c == '_' || (c >= 'A' && c <= 'Z'); }))
          kind = word;
        else if (kind == "PUBLIC" || kind == "SHARED")
          (kind == "PUBLIC" ? made.public_headers : made.shared_headers).merge(headers_named(room, word));
      }
    }
    return made;
  }();
  return all;
}

TEST(Rooms, TheTableNamesEachRoomOnceAndOnlyRoomsAboveIt) {
  RoomNames above;
  for (const auto& [room, others] : room_lines()) {
    EXPECT_TRUE(fs::is_directory(source_dir() / "ulp" / room)) << "cmake/rooms.txt names '" << room << "'";
    for (const std::string& other : others)
      EXPECT_TRUE(above.contains(other))
          << "'" << room << "' may include '" << other << "', which no line above has";
    EXPECT_TRUE(above.insert(room).second) << "'" << room << "' stands twice";
  }
  EXPECT_EQ(above.size(), allowed().size());
  EXPECT_GT(above.size(), 15u) << "cmake/rooms.txt was not read";
}

TEST(Rooms, EveryFileIsInARoomOfTheTable) {
  int seen = 0;
  for (const auto& entry : fs::recursive_directory_iterator(source_dir() / "ulp")) {
    const std::string file = fs::relative(entry.path(), source_dir()).generic_string();
    if (!entry.is_regular_file() || entry.path().parent_path() == source_dir() / "ulp") continue;
    ++seen;
    EXPECT_NE(room_of(file), "") << file << " is in no room of cmake/rooms.txt";
  }
  EXPECT_GT(seen, 200) << "the sources were not found";
}

TEST(Rooms, IncludeOnlyDownward) {
  for (const Include& use : all_includes()) {
    if (use.room.empty() || use.room == kTool || use.other.empty() || use.other == use.room) continue;
    EXPECT_TRUE(allowed().at(use.room).contains(use.other))
        << use.file << " includes " << use.header << ": '" << use.room << "' may not use '" << use.other
        << "'";
  }
}

/// The headers above the rooms, as they are included.
RoomNames headers_above() {
  RoomNames found;
  for (const auto& entry : fs::directory_iterator(source_dir() / "ulp"))
    if (entry.path().extension() == ".h") found.insert("ulp/" + entry.path().filename().string());
  return found;
}

TEST(Rooms, IncludeNoHeaderThatIsAboveThem) {
  const RoomNames above = headers_above();
  EXPECT_GT(above.size(), 15u);
  for (const Include& use : all_includes()) {
    const bool own = use.header == "ulp/version.h" || use.header == "ulp/ulp_runtime.h";
    EXPECT_TRUE(use.room.empty() || use.room == kTool || own || !above.contains(use.header))
        << use.file << " includes " << use.header << ", which is for programs";
  }
}

/// The folder of a room in which a file or header is; empty for those directly in the room.
std::string folder_of(const std::string& path, const std::string& room) {
  const std::string inside = path.substr(room == kTool ? room.size() + 1 : room.size() + 5);
  const size_t slash = inside.find('/');
  return slash == std::string::npos ? "" : inside.substr(0, slash);
}

/// The folders of a room that each folder includes, and those that these include.
std::map<std::string, RoomNames> folders_below(const std::string& room) {
  std::map<std::string, RoomNames> below;
  for (const Include& use : all_includes()) {
    if (use.room != room || use.other != room) continue;
    const std::string from = folder_of(use.file, room), to = folder_of(use.header, room);
    if (from != to) below[from].insert(to);
  }
  for (size_t round = 0; round < below.size(); ++round) {
    for (auto& [folder, others] : below) {
      for (const std::string& other : RoomNames(others))
        others.insert(below[other].begin(), below[other].end());
    }
  }
  return below;
}

/// Folders of these rooms still include each other in circles. A room that is mended leaves this list.
const RoomNames kRoomsWithCircles = {"runtime", "measure", "graph", "quant", "prune", "exchange", "distill"};

TEST(Rooms, FoldersOfARoomIncludeEachOtherInNoCircles) {
  for (const auto& [room, others] : allowed()) {
    bool circles = false;
    std::string text;
    for (const auto& [folder, below] : folders_below(room)) {
      if (!below.contains(folder)) continue;
      circles = true;
      text += " '" + folder + "'";
    }
    EXPECT_EQ(circles, kRoomsWithCircles.contains(room)) << room << text;
  }
}

TEST(Rooms, EachRoomThatProgramsUseHasAHeader) {
  const RoomNames without = {"base", "kernels", "kernels/training", "libtorch", "report"};
  const RoomNames above = headers_above();
  for (const auto& [room, others] : allowed())
    EXPECT_NE(above.contains("ulp/" + room + ".h"), without.contains(room)) << room;
}

TEST(Rooms, IncludeOnlyWhatAnotherRoomShows) {
  for (const Include& use : all_includes()) {
    if (use.other.empty() || use.other == use.room || use.other == kTool) continue;
    EXPECT_TRUE(lists().shown(use.header))
        << use.file << " includes " << use.header << ", which is neither PUBLIC nor SHARED in ulp/"
        << use.other << "/CMakeLists.txt";
  }
}

TEST(Rooms, UseEveryPermissionOfTheTable) {
  std::map<std::string, RoomNames> used;
  for (const Include& use : all_includes()) used[use.room].insert(use.other);
  for (const auto& [room, others] : allowed())
    for (const std::string& other : others)
      EXPECT_TRUE(used[room].contains(other)) << "'" << room << "' includes nothing of '" << other << "'";
}

TEST(Rooms, TheRuntimeKnowsNoLibTorch) {
  for (const Include& use : all_includes()) {
    const bool torch =
        use.header.starts_with("torch/") || use.header.starts_with("ATen/") || use.header.starts_with("c10/");
    EXPECT_FALSE(torch && kWithoutTorch.contains(use.room)) << use.file << " includes " << use.header;
  }
}

TEST(Rooms, AnInstalledHeaderIncludesInstalledOnesOnly) {
  RoomNames installed = lists().public_headers;
  ASSERT_GT(installed.size(), 100u) << "the lists of headers were not found";
  installed.merge(headers_above());
  for (const std::string& header : installed) {
    EXPECT_TRUE(fs::exists(source_dir() / header)) << header << " is listed and does not exist";
    for (const std::string& other : includes_of(source_dir() / header))
      EXPECT_TRUE(!other.starts_with("ulp/") || installed.contains(other))
          << header << " is installed and includes " << other << ", which is not";
  }
}

/// Visits a header and every header of ours that it includes.
void check_light(const std::string& header, RoomNames& seen) {
  if (!seen.insert(header).second) return;
  for (const std::string& other : includes_of(source_dir() / header)) {
    EXPECT_NE(other, "torch/torch.h") << header;
    if (other.starts_with("ulp/")) check_light(other, seen);
  }
}

TEST(Rooms, TheUmbrellaHeaderIsLight) {
  RoomNames seen;
  check_light("ulp/ulp.h", seen);
  EXPECT_GT(seen.size(), 100u);
}

std::vector<std::string> cells(const std::string& row) {
  std::vector<std::string> found;
  std::istringstream in(row.substr(1));
  for (std::string cell; std::getline(in, cell, '|');) {
    const auto first = cell.find_first_not_of(' '), last = cell.find_last_not_of(' ');
    found.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
  }
  return found;
}

/// The names of a comma-separated list.
RoomNames names(const std::string& list) {
  RoomNames found;
  std::istringstream in(list);
  for (std::string name; std::getline(in >> std::ws, name, ',');) found.insert(name);
  return found;
}

TEST(Rooms, TheTableInTheDocumentsIsThisOne) {
  const std::string head = "| room | holds | may include |\n";
  std::map<std::string, RoomNames> documented;
  int tables = 0;
  for (const auto& entry : fs::directory_iterator(source_dir() / "docs")) {
    const std::string text = read_text(entry.path());
    const auto at = text.find(head);
    if (at == std::string::npos) continue;
    ++tables;
    std::istringstream rows(text.substr(at + head.size()));
    std::string row;
    std::getline(rows, row);  // the line under the head
    while (std::getline(rows, row) && row.starts_with("|")) {
      const auto columns = cells(row);
      ASSERT_EQ(columns.size(), 3u) << row;
      documented[columns[0]] = names(columns[2]);
    }
  }
  ASSERT_EQ(tables, 1) << "one page of docs/ holds the table with the head " << head;
  EXPECT_EQ(documented, allowed());
}

}  // namespace
