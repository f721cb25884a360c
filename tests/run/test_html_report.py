"""The HTML report as a file."""

import base64
import hashlib
import html
import json
import os
import re

import pytest

from cyclegan.run import html_report
from cyclegan.run.html_report import Frame, Item
from tests.run.reports import ODD, report_data


def test_report_is_self_contained(report):
    text = report.read_text(encoding="utf-8")
    assert sorted(os.listdir(report.parent)) == ["10", "20", "30", "in", "index.html"]
    assert "<title>a run</title>" in text and "<li>of the newest checkpoint</li>" in text and "{{" not in text
    assert not re.search(r"https?:|//\w|\b(src|href)=|@import|url\(", text)
    first = report_data(report)["items"][0]
    assert (first["name"], first["direction"], first["input"]) == ("a", "X → Y", "in/a")
    frame = {"output": "20/a%20out", "cycle": "20/a%20back", "scores": {"cycle error": 20.0}, "epoch": 20}
    assert first["frames"][1] == frame


def test_policy_allows_only_the_own_script(report):
    text = report.read_text(encoding="utf-8")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; img-src 'self' file:;") and "unsafe" not in policy
    for element in ("style", "script"):
        (content,) = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in html.unescape(policy)


@pytest.mark.parametrize("odd", ODD)
def test_names_cannot_break_out_of_the_markup(tmp_path, odd):
    path = html_report.write(tmp_path, odd, [Item(odd, odd, odd, [Frame(odd, scores={odd: 1.0})])], [odd])
    text = path.read_bytes().decode("utf-8")  # whatever the names are
    (found,) = re.findall(r'<script type="application/json">(.*?)</script>', text, re.DOTALL)
    assert not set("<>&\n\u2028\u2029") & set(found) and found.isascii()
    assert text.count("<script") == 2 and "<img src=x" not in text
    item = json.loads(found)["items"][0]
    assert item["name"] == odd.replace("\n", "\\n").replace("\u2028", "\\u2028").replace("\udce9", "\\udce9")
    assert re.fullmatch(r"[\w.~/%-]+", item["input"], re.ASCII)


def test_paths_become_relative_urls(tmp_path):
    urls = {"a b/c#d.png": "a%20b/c%23d.png", "50%?.png": "50%25%3F.png", "caf\udce9": "caf%E9", "a:b": "a%3Ab", "": ""}
    items = [Item("n", "X → Y", "i", [Frame("o", name)]) for name in urls]
    data = report_data(html_report.write(tmp_path, "t", items))
    assert [item["frames"][0]["cycle"] for item in data["items"]] == [*urls.values()]
    with pytest.raises(ValueError, match="/etc/x: expected a path relative to the folder of the report"):
        html_report.write(tmp_path, "t", [Item("n", "X → Y", "/etc/x", [Frame("o")])])


def test_a_score_that_is_not_finite_leaves_the_report(report):
    before = report.read_bytes()
    with pytest.raises(ValueError):
        html_report.write(report.parent, "t", [Item("n", "X → Y", "i", [Frame("o", scores={"error": float("nan")})])])
    assert report.read_bytes() == before
