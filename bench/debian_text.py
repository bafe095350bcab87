#!/usr/bin/env python3
"""English text from a Debian machine's documentation, for language models: debian_text.py OUT [BYTES]

READMEs, news and other plain ASCII text of /usr/share/doc and /usr/share/common-licenses, each once and at most 60,000 bytes of it, in an order that
is shuffled but always the same. What it is depends on the packages that are installed.
"""
import os
import random
import re
import sys

NAMES = re.compile(r"(^README.*|README|NEWS|TODO|FAQ|\.txt|\.md|\.rst)$")


def paths():
    for root, _, files in os.walk("/usr/share/doc"):
        for name in files:
            path = os.path.join(root, name)
            if NAMES.search(name) and not name.endswith(".gz") and os.path.isfile(path) and not os.path.islink(path):
                yield path
    for name in os.listdir("/usr/share/common-licenses"):
        path = os.path.join("/usr/share/common-licenses", name)
        if not os.path.islink(path):
            yield path


def main():
    texts, seen = [], set()
    for path in sorted(paths()):
        try:
            with open(path, encoding="ascii") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError):
            continue
        if len(text) < 500:
            continue
        text = re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+", " ", text))
        if text[:2000] in seen:
            continue
        seen.add(text[:2000])
        texts.append(text[:60000])
    random.Random(1).shuffle(texts)
    size = int(sys.argv[2]) if len(sys.argv) > 2 else None
    with open(sys.argv[1], "w", encoding="ascii") as file:
        file.write("\n\n".join(texts)[:size])


main()
