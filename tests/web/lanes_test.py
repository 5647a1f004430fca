#!/usr/bin/env python3
"""The pages of `deft ... --html` in a browser: what is drawn, the keys, the table, the network.

usage: lanes_test.py DEFT [WORKLOADS]
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import browser

HOSTILE = "</script><img src=x onerror=alert(1)>&amp;<!--\"'"
WORKLOADS = ("gpt2-124m_cr130_l2", "vgg19_cr220_l1", "resnet101_cr060_l1")
STAGES = {"forward": "Forward", "backward": "Backward", "optimizer": "Optimizer",
          "exposed": "Waiting for communication"}

# Boxes of the texts of the chart that overlap another of the same row, or are cut by its edges.
BAD_LABELS = """(() => {
  const chart = document.querySelector(".lanes-scroll svg");
  const edge = chart.viewBox.baseVal.width;
  const boxes = [...chart.querySelectorAll("text")].map((t) => [t.textContent, t.getBBox()]);
  const bad = boxes.filter(([, b]) => b.x < -0.5 || b.x + b.width > edge + 0.5);
  const rows = boxes.sort(([, a], [, b]) => a.y - b.y || a.x - b.x);
  for (let i = 1; i < rows.length; i++) {
    const [[, a], [, b]] = [rows[i - 1], rows[i]];
    if (Math.abs(a.y - b.y) < 1 && a.x + a.width > b.x + 0.5) {
      bad.push(rows[i]);
    }
  }
  return bad.map(([text]) => text);
})()"""

FOCUS = """(() => {
  const block = document.activeElement.block;
  if (block === undefined) { return null; }
  return { lane: block.lane.name, at: block.lane.blocks.indexOf(block),
           n: block.lane.blocks.length, begin: block.begin, end: block.end,
           label: document.activeElement.getAttribute("aria-label"),
           details: document.querySelector(".lanes-details").innerText };
})()"""


def check(truth, text):
    if not truth:
        raise AssertionError(text)


def equal(got, expected, what):
    check(got == expected, f"{what}: {got!r}, expected {expected!r}")


def hostile_profile(path):
    """A small job that waits for communication, with names that try to get out."""
    tensors = [{"name": f"{HOSTILE}{i}", "elements": 600000, "dtype": "f32",
                "forward_ns": 1000000, "backward_ns": 2000000} for i in range(8)]
    profile = {"schema": "deft.profile/1",
               "job": {"name": HOSTILE, "world_size": 4},
               "compute": {"forward_ns": 8000000, "backward_ns": 16000000,
                           "optimizer_ns": 700000},
               "links": [{"name": HOSTILE, "alpha_ns": 50000, "bytes_per_s": 400000000},
                         {"name": "slow", "alpha_ns": 90000, "bytes_per_s": 200000000}],
               "tensors": tensors}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(profile, file)


def timeline_of(page):
    with open(page, encoding="utf-8") as file:
        text = file.read()
    found = re.findall(r'<script type="application/json" id="timeline">(.*?)</script>', text)
    equal(len(found), 1, "timelines in the page")
    return json.loads(found[0])


def expected_rows(timeline):
    """The table that a timeline should become, lane by lane."""
    def times(begin, end):
        return [f"{t / 1e6:.6f}" for t in (begin, end, end - begin)]

    rows = [["compute", STAGES[stage], str(iteration), "", "", "", *times(begin, end)]
            for stage, iteration, begin, end in timeline["window"]["stages"]]
    for index, name in enumerate(timeline["links"]):
        rows += [[name, "All-reduce", "", str(generation), str(bucket),
                  "" if size is None else str(size), *times(begin, end)]
                 for link, generation, bucket, size, begin, end in timeline["window"]["transfers"]
                 if link == index]
    return rows


def check_drawing(page, timeline):
    n = len(timeline["window"]["stages"]) + len(timeline["window"]["transfers"])
    check(n > 4, "a picture of next to nothing")
    equal(page.value("document.querySelectorAll('.lanes-block').length"), n, "blocks drawn")
    equal(page.value("document.getElementById('title').textContent"), timeline["profile"], "title")
    equal(page.value("document.querySelectorAll('img').length"), 0, "elements out of names")
    names = page.value("[...document.querySelectorAll('.lanes-names span')]"
                       ".map(e => e.textContent)")
    equal(names, ["compute", *timeline["links"]], "lanes")
    figures = page.value("Object.fromEntries([...document.querySelectorAll('.lanes-figures div')]"
                         ".map(e => [e.querySelector('dt').textContent, "
                         "e.querySelector('dd').textContent]))")
    for name in ("Step", "Compute T", "Exposed, per step", "Updates per step", "Update rule",
                 "Delay, mean", "Delay, longest", "Pending memory", "Coverage rate"):
        check(figures.get(name), f"no figure '{name}'")
    equal(figures["Update rule"], timeline["rule"], "rule")
    equal(figures["Updates per step"], f"{timeline['report']['updates_per_step']:.3f}", "updates")
    # Blocks stand where their times say.
    wrong = page.value("""(() => {
      const chart = document.querySelector(".lanes-scroll svg");
      const scale = chart.viewBox.baseVal.width /
                    JSON.parse(document.getElementById("timeline").textContent).window.span_ns;
      return [...chart.querySelectorAll(".lanes-block")].filter((rect) => {
        const end = Math.min(rect.block.end * scale, chart.viewBox.baseVal.width);
        const box = rect.getBBox();
        return Math.abs(box.x + box.width - end) > 0.6;
      }).length;
    })()""")
    equal(wrong, 0, "blocks beside their times")


def check_layout(page):
    """Widths of phones to wide screens, light and dark."""
    papers = set()
    for scheme in ("light", "dark"):
        for width in (360, 1000, 1600):
            page.resize(width, 800, scheme)
            what = f"{scheme}, {width} px"
            equal(page.value("document.documentElement.scrollWidth - "
                             "document.documentElement.clientWidth"), 0, f"beyond {what}")
            equal(page.value(BAD_LABELS), [], f"labels at {what}")
            clipped = page.value("[...document.querySelectorAll('.lanes dd, .lanes dt, h1, p')]"
                                 ".filter(e => e.scrollWidth > e.clientWidth + 1)"
                                 ".map(e => e.textContent)")
            equal(clipped, [], f"texts cut at {what}")
        papers.add(page.value("getComputedStyle(document.body).backgroundColor"))
    equal(len(papers), 2, "backgrounds of light and dark")


def press(page, key):
    page.key(key)
    focus = page.value(FOCUS)
    check(focus is not None, f"{key} left the blocks")
    for term in ("Begin", "End", "Duration"):
        check(term in focus["details"], f"no {term} in the details of {focus}")
    return focus


def check_keys(page, timeline):
    for _ in range(20):
        page.key("Tab")
        focus = page.value(FOCUS)
        if focus is not None:
            break
    check(focus is not None, "Tab does not lead to a block")
    equal((focus["lane"], focus["at"]), ("compute", 0), "first block")
    equal(press(page, "ArrowRight")["at"], 1, "right")
    equal(press(page, "ArrowLeft")["at"], 0, "left")
    equal(press(page, "ArrowLeft")["at"], 0, "left at the begin")
    end = press(page, "End")
    equal(end["at"], end["n"] - 1, "End")
    equal(press(page, "ArrowRight")["at"], end["n"] - 1, "right at the end")
    link = press(page, "ArrowDown")
    equal(link["lane"], timeline["links"][0], "lane below")
    for term in ("Bucket", "Generation", "Size", "Link"):
        check(term in link["label"] and term in link["details"], f"no {term} in {link}")
    equal(press(page, "Home")["at"], 0, "Home")
    equal(press(page, "ArrowUp")["lane"], "compute", "lane above")
    # What has the focus is in sight, and keeps the focus through a zoom.
    press(page, "End")
    page.value("document.querySelectorAll('.lanes-zoom button')[1].click()")
    check(page.value("""(() => {
      const box = document.activeElement.getBoundingClientRect();
      const view = document.querySelector(".lanes-scroll").getBoundingClientRect();
      return document.activeElement.block !== undefined && box.right <= view.right + 3 &&
             box.right > view.left;
    })()"""), "the focus is lost or out of sight after a zoom")
    equal(page.value("document.querySelectorAll('.lanes-block[tabindex=\"0\"]').length"), 1,
          "blocks in the order of Tab")


def check_pointer(page):
    place = page.value("""(() => {
      const scroll = document.querySelector(".lanes-scroll");
      scroll.scrollLeft = 0;
      scroll.scrollIntoView();
      const box = scroll.querySelector(".lanes-backward").getBoundingClientRect();
      return [box.x + Math.min(box.width, 100) / 2, box.y + box.height / 2];
    })()""")
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
    details = page.value("document.querySelector('.lanes-details').innerText")
    check("Backward" in details, f"the pointer on a block of backward shows {details!r}")


def check_table(page, timeline):
    page.value("document.querySelector('.lanes-data summary').focus()")
    page.key("Enter")
    page.call("Input.dispatchKeyEvent", type="char", text="\r")
    page.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    rows = page.value("[...document.querySelectorAll('.lanes-data tbody tr')]"
                      ".map(row => [...row.cells].map(cell => cell.textContent))")
    equal(rows, expected_rows(timeline), "rows of the table")


def check_print(page):
    page.value("""window.printed = 0; window.addEventListener("beforeprint", () => {
      window.printed = document.querySelector(".lanes-scroll svg").viewBox.baseVal.width; })""")
    pdf = page.call("Page.printToPDF", printBackground=True)["data"]
    check(len(pdf) > 10000, "the printed page is empty")
    width = page.value("window.printed")
    check(0 < width <= 600, f"printed {width} px wide, which no page of paper is")
    # The printer's layout is another width, which must not bring back that of the screen.
    page.call("Emulation.setEmulatedMedia", media="print")
    page.value("window.dispatchEvent(new Event('beforeprint'))")
    page.resize(700, 900, "light", media="print")
    equal(page.value("document.querySelector('.lanes-scroll svg').viewBox.baseVal.width"), width,
          "width on paper")
    page.value("window.dispatchEvent(new Event('afterprint'))")
    page.resize(1000, 800, "light")
    page.value("document.querySelectorAll('.lanes-zoom button')[2].click()")
    check(page.value("document.querySelector('.lanes-scroll svg').viewBox.baseVal.width") > width,
          "the width of paper stays after printing")


def check_policy(page):
    """The page's own rules keep everything else out. This makes it complain, so it comes last."""
    page.value("""(() => { const script = document.createElement("script");
      script.textContent = "window.wasRun = true"; document.body.append(script); })()""")
    equal(page.value("window.wasRun === undefined"), True, "a foreign script was kept out")
    blocked = page.value("fetch('data:text/plain,x').then(() => false, () => true)")
    equal(blocked, True, "requests of scripts are blocked")


def check_page(page, path):
    timeline = timeline_of(path)
    page.open("file://" + path)
    page.resize(1000, 800, "light")
    check_drawing(page, timeline)
    check_layout(page)
    page.resize(1000, 800, "light")
    check_keys(page, timeline)
    check_pointer(page)
    check_table(page, timeline)
    check_print(page)
    equal(page.complaints(), [], "complaints of the page")
    equal(page.requests(), ["file://" + path], "requests")
    check_policy(page)


def main():
    deft = sys.argv[1]
    path = browser.find()
    folder = tempfile.mkdtemp(prefix="deft_lanes.")
    page = browser.Browser(path)
    try:
        profile = os.path.join(folder, "hostile.json")
        hostile_profile(profile)
        jobs = [(["simulate", "--policy", "wfbp"], profile),
                (["plan", "--max-merge", "3"], profile),
                (["explain", "--rules", "exact"], profile)]
        if len(sys.argv) > 2:
            jobs += [(["plan"], os.path.join(sys.argv[2], f"{name}.json")) for name in WORKLOADS]
        for number, (command, file) in enumerate(jobs):
            out = os.path.join(folder, f"page{number}.html")
            subprocess.run([deft, *command, "--html", out, file], check=True,
                           stdout=subprocess.DEVNULL)
            check_page(page, out)
            print(f"{' '.join(command)} {os.path.basename(file)}: as expected")
    finally:
        page.close()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
