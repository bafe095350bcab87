#!/usr/bin/env python3
"""Writes tokenizers.json: what Hugging Face's `tokenizers` makes of lines, with two tokenizers trained on the spot.

    .deps/peers-venv/bin/python tests/golden/make_tokenizers.py      (with `pip install tokenizers`)
"""
import json
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench" / "peers"))
from tokenizers import AddedToken  # noqa: E402
from tokenizers.processors import TemplateProcessing  # noqa: E402
import tokenizers_check as peers  # noqa: E402

FIXED = ["", " ", "Hello, world! It's  a test.", "don't you'll WE'RE   \t\n 12345 x2", "caf\u00e9 na\u00efve \u00c5ngstr\u00f6m \u0130stanbul \u1e9e",
         "e\u0301 a\u0316\u0301 \u1ab0 \u0344 \u11938", "\u4e2d\u6587 test \u65e5\u672c\u8a9e \u3400 \U0002b820 \U0002b920",
         "\U0001F469\u200d\U0001F680 \U0001F1E9\U0001F1EA", "a\u0000b\ufffdc\u200bd\u00ade\u2028f\u3000g\u00a0h", "\u166d \u1734 \u1885 \ua9bd \U000111c9 \u2e43",
         "[MASK] [mask] x[CLS]y <tag>  <TAG> z", "Hello World hello world HelloWorld  caf\u00e9   end", "\u1c89 \ua7cb \U00010d50 \U00016ea0",
         "a" * 101 + " " + "b" * 100, "\r\n\r\n", "'s 's'S 'll", "no .dots , here ? ok ' yes"]


def main():
    rng = random.Random(7)
    text = "".join(peers.training_lines(rng, 60))
    lines = [line + "\n" for line in text.split("\n")[:-1]]
    bpe, wordpiece = peers.train_bpe(lines, 500), peers.train_wordpiece(lines, 500)
    wordpiece.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    trained = json.loads(bpe.to_str())["model"]
    found = {"training_text": text, "bpe_vocab": trained["vocab"], "bpe_merges": trained["merges"], "cases": []}
    added = ["[MASK]", "<tag>", "Hello World", "caf\u00e9"]
    for name, tokenizer in (("wordpiece", wordpiece), ("bpe", bpe)):
        tokenizer.add_tokens([AddedToken("<tag>", lstrip=True), AddedToken("Hello World", single_word=True),
                              AddedToken("caf\u00e9", rstrip=True)])
        case = {"name": name, "tokenizer": tokenizer.to_str(), "lines": []}
        for line in FIXED + [peers.random_line(rng, added) for _ in range(60)]:
            encoded = tokenizer.encode(line)
            case["lines"].append({"text": line, "ids": encoded.ids, "decoded": tokenizer.decode(encoded.ids)})
        found["cases"].append(case)
    path = pathlib.Path(__file__).with_name("tokenizers.json")
    path.write_text(json.dumps(found, separators=(",", ":")) + "\n")
    print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
