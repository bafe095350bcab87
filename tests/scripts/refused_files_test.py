"""Each message that docs/refused-files.md lists is one of the sources."""
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs/refused-files.md"


def words_of_sources():
    """The text of the sources in one line; literals that lie side by side are one."""
    files = [path for folder in ("ulp", "cli") for ending in ("h", "cpp") for path in sorted((ROOT / folder).rglob("*." + ending))]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return re.sub(r"\s+", " ", re.sub(r'"\s*\n\s*"', "", text))


def messages(line):
    """The parts of messages in the first column of a row: `;` stands between messages, `...` for names and numbers."""
    cell = line.split("|")[1]
    parts = [part.strip(" '").removeprefix("expected ") for message in cell.split(";") for part in message.split("...")]
    return [part for part in parts if len(part) > 2 and part != "expected"]


class RefusedFiles(unittest.TestCase):
    def test_each_message_of_the_page_is_in_the_sources(self):
        sources, seen = words_of_sources(), 0
        for number, line in enumerate(PAGE.read_text(encoding="utf-8").splitlines(), 1):
            if not line.startswith("| ") or line.startswith("| the message says"):
                continue
            for part in messages(line):
                seen += 1
                with self.subTest(line=number):
                    self.assertTrue(part in sources, f"{PAGE.name}:{number} lists '{part}', which no source has")
        self.assertGreater(seen, 100)

    def test_a_message_has_parts(self):
        self.assertEqual(messages("| expected at most ... nodes; version 2 or 3; expected '...' to be a number | why | what |"),
                         ["at most", "nodes", "version 2 or 3", "to be a number"])


if __name__ == "__main__":
    unittest.main()
