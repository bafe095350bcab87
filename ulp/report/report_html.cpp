#include <algorithm>
#include <functional>
#include <map>

#include "ulp/base/atomic_file.h"
#include "ulp/base/error.h"
#include "ulp/report/assets.h"
#include "ulp/report/format.h"
#include "ulp/report/report.h"

namespace ulp::report {
namespace {

std::string escape(const std::string& text) {
  std::string out;
  for (const char c : clean_line(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// Inside <script> only "<" can end or change the element ("</script", "<!--"); JSON may write it as an
// escape.
std::string escape_script_json(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

std::string tag(const char* name, const std::string& attributes, const std::string& inner) {
  if (inner.empty()) return {};
  return std::string("<") + name + (attributes.empty() ? "" : " " + attributes) + ">" + inner + "</" + name +
         ">\n";
}

std::string table_head(const Table& table, const ShownTable& shown) {
  std::string out = "<thead><tr>";
  for (size_t c = 0; c < table.columns.size(); ++c) {
    const Column& column = table.columns[c];
    out += std::string("<th scope=\"col\"") + (shown.numeric[c] ? " class=\"number\">" : ">") +
           escape(column.name);
    if (!column.unit.empty()) out += "<span class=\"unit\">" + escape(column.unit) + "</span>";
    out += "</th>";
  }
  return out + "</tr></thead>\n";
}

std::string table_html(const Table& table) {
  const ShownTable shown = show(table);
  std::string body;
  bool any_best = false;
  for (size_t r = 0; r < shown.cells.size(); ++r) {
    body += "<tr>";
    for (size_t c = 0; c < table.columns.size(); ++c) {
      const bool heads_row = c == 0 && !shown.numeric[c];
      const std::string& cell = shown.cells[r][c];
      std::string classes = shown.numeric[c] ? "number" : "";
      if (shown.best[r][c]) classes += " best";
      if (cell.empty()) classes += " missing";
      const std::string& mark = shown.marks[r][c];
      if (!mark.empty()) classes += " marked";
      any_best = any_best || shown.best[r][c];
      body += heads_row ? "<th scope=\"row\"" : "<td";
      if (!classes.empty()) body += " class=\"" + classes + "\"";
      body += "><span>" + (cell.empty() ? "–" : escape(cell)) + "</span>" +
              (mark.empty() ? "" : "<small>" + escape(mark) + "</small>") + (heads_row ? "</th>" : "</td>");
    }
    body += "</tr>\n";
  }
  std::string caption = escape(table.caption);
  if (any_best)
    caption += std::string(caption.empty() ? "" : " ") +
               "<span class=\"key\">Marked</span> is the best of its column.";
  return "<section>\n" + tag("h2", "", escape(table.title)) +
         "<div class=\"scroll\" tabindex=\"0\"><table>\n" + table_head(table, shown) + "<tbody>\n" + body +
         "</tbody>\n</table></div>\n" + tag("p", "class=\"caption\"", caption) + "</section>\n";
}

void check(const Chart& chart) {
  const bool plain_x = chart.kind != ChartKind::bars && chart.kind != ChartKind::ranges;
  if (!plain_x && !chart.bands.empty()) {
    fail("report.html", "expected no bands in chart '", chart.title, "', got ", chart.bands.size());
  }
  for (const Series& series : chart.series) {
    const bool bars = chart.kind == ChartKind::bars;
    if (!bars && series.x.size() != series.y.size()) {
      fail("report.html", "expected as many x as y in series '", series.name, "' of chart '", chart.title,
           "', got ", series.x.size(), " and ", series.y.size());
    }
    const size_t labels = series.labels.size();
    if ((labels != 0 || bars || chart.kind == ChartKind::ranges) && labels != series.y.size()) {
      fail("report.html", "expected one label per point in series '", series.name, "' of chart '",
           chart.title, "', got ", labels, " for ", series.y.size());
    }
  }
}

// Histograms take the whole width. Of an odd number of others the first does, so that no cell stays empty.
bool is_wide(const std::vector<Chart>& charts, size_t i) {
  const auto narrow = [](const Chart& chart) { return chart.kind != ChartKind::histogram; };
  if (!narrow(charts[i])) return true;
  const bool first = std::none_of(charts.begin(), charts.begin() + static_cast<std::ptrdiff_t>(i), narrow);
  return first && std::count_if(charts.begin(), charts.end(), narrow) % 2 == 1;
}

std::string charts_html(const std::vector<Chart>& charts) {
  if (charts.empty()) return {};
  std::string out = "<section>\n<h2>Charts</h2>\n<div class=\"charts\">\n";
  for (size_t i = 0; i < charts.size(); ++i) {
    check(charts[i]);
    const bool wide = is_wide(charts, i);
    out += std::string("<figure") + (wide ? " class=\"wide\">" : ">") +
           tag("h3", "", escape(charts[i].title)) + "<div class=\"plot\"><canvas id=\"chart-" +
           std::to_string(i) + "\" role=\"img\" aria-label=\"" +
           escape(charts[i].title + ". " + charts[i].caption) + "\"></canvas></div>" +
           tag("figcaption", "", escape(charts[i].caption)) + "</figure>\n";
  }
  return out +
         "</div>\n<noscript><p>The charts need JavaScript; their data is in this page as "
         "JSON.</p></noscript>\n</section>\n";
}

std::string facts_html(const char* title, const std::vector<Fact>& facts) {
  std::string list;
  for (const Fact& fact : facts)
    list += "<dt>" + escape(fact.name) + "</dt><dd>" + escape(fact.value) + "</dd>\n";
  if (list.empty()) return {};
  return std::string("<section><h2>") + title + "</h2>\n<dl>\n" + list + "</dl></section>\n";
}

std::string headlines_html(const std::vector<Headline>& headlines) {
  std::string list;
  for (const Headline& h : headlines) {
    list += "<div><dt>" + escape(h.label) + "</dt><dd>" + escape(h.value) + "</dd></div>\n";
  }
  return tag("dl", "class=\"headlines\"", list);
}

// Fills {{name}} in one pass, so that what is filled in is never read as a template again.
std::string fill(std::string_view page, const std::map<std::string, std::string, std::less<>>& values) {
  std::string out;
  for (size_t at = 0;;) {
    const size_t open = page.find("{{", at);
    out += page.substr(at, open - at);
    if (open == std::string_view::npos) return out;
    const size_t close = page.find("}}", open);
    out += values.find(page.substr(open + 2, close - open - 2))->second;
    at = close + 2;
  }
}

void write_whole(const std::filesystem::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace

std::string Report::to_html() const {
  std::string table_sections, note_items;
  for (const Table& table : tables) table_sections += table_html(table);
  for (const std::string& note : notes) note_items += "<li>" + escape(note) + "</li>\n";
  if (!note_items.empty()) note_items = "<section><h2>Notes</h2>\n<ul>\n" + note_items + "</ul></section>\n";
  return fill(assets::page_html,
              {{"title", escape(title)},
               {"subtitle", tag("p", "class=\"subtitle\"", escape(subtitle))},
               {"css", std::string(assets::page_css)},
               {"headlines", headlines_html(headlines)},
               {"tables", table_sections},
               {"charts", charts_html(charts)},
               {"notes", note_items},
               {"facts", tag("div", "class=\"facts\"",
                             facts_html("Settings", settings) + facts_html("Machine", machine))},
               {"created", "Made by ulp" + (created.empty() ? "" : ", " + escape(created)) + "."},
               {"data", escape_script_json(to_json(-1))},
               {"chart_js", std::string(assets::chart_js)},
               {"js", std::string(assets::page_js)}});
}

void Report::write_html(const std::filesystem::path& path) const {
  write_whole(path, to_html());
}
void Report::write_json(const std::filesystem::path& path) const {
  write_whole(path, to_json() + "\n");
}

}  // namespace ulp::report
