"""docs/benchmarks.md: each benchmark owns the part between its two markers."""
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"

HEAD = """# Benchmarks

Every figure here was written by the tool that its part names, in one run on one machine. Machines
differ and are shared: what carries over are the ratios inside a part, not its milliseconds. Each
speed stands beside its statistical cost: updates per step, delay, update rule.
"""


def markers(name):
    return f"<!-- begin {name} -->", f"<!-- end {name} -->"


def table(headings, rows, right_from=1):
    """Markdown; columns from `right_from` on stand to the right."""
    lines = ["| " + " | ".join(headings) + " |",
             "|" + "|".join("---" if i < right_from else "---:"
                            for i in range(len(headings))) + "|"]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def write(name, text, page=PAGE):
    """Replaces the part `name`, or adds it at the end."""
    begin, end = markers(name)
    old = page.read_text(encoding="utf-8") if page.exists() else HEAD
    part = f"{begin}\n{text.strip()}\n{end}\n"
    if begin in old:
        before, rest = old.split(begin, 1)
        _, after = rest.split(end + "\n", 1)
        new = before + part + after
    else:
        new = old.rstrip() + "\n\n" + part
    page.write_text(new, encoding="utf-8")
